# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""A tiny model on disk."""

import pytest
from tiny_models import save_with_tokenizer


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory):
    return save_with_tokenizer(tmp_path_factory.mktemp("model"))
