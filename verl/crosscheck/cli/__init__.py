# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""The console script `verl-crosscheck`: what two runs do, and what lies in their directory. See docs/command_line.md.

Started through `_verl_overlay.command`, which keeps torch and Ray away; only `--tokenizer` imports transformers, and
with it torch.
"""

from verl.crosscheck.cli.app import main

__all__ = ["main"]
