# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Importing this module plants the training faults of the process's plan in the workers that the process has.

Nothing here imports it: `actor_rollout_ref.model.external_lib` names it, and upstream imports what that names wherever
it reads the model's configuration.
"""

from recipe.crosscheck.faults.site import own_site
from recipe.crosscheck.faults.wiring import plant

plant(own_site())
