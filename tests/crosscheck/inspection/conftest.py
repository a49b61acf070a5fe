# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The fixtures that the tests of `cli` and of `inspection` share."""

from command_fixtures import call, call_json, pair, replaced_card

__all__ = ["call", "call_json", "pair", "replaced_card"]
