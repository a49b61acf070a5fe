# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""docs/schema says what the document types say."""

import schemas


def test_the_schemas_in_the_docs_are_those_of_the_types():
    found = {path.name: path.read_text(encoding="utf-8") for path in schemas.FOLDER.iterdir()}
    assert found == schemas.schemas(), "docs/schema is stale: run scripts/schemas"
