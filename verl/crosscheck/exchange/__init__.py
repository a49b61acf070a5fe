# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Files between two runs. Knows nothing of RL, and imports neither ray nor hydra nor verl.trainer."""
