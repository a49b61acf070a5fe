# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""What a person reads: a page, a text for the terminal, one object for machines, one line a step for the log.

`load` reads a directory into the plain data of `model`; `page`, `text` and `as_json` show it. The command is
`verl-crosscheck report`. Only `page` and what it calls import jinja2.
"""
