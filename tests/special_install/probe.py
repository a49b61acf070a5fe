# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Run by `test_install_on_cpu.py` in an environment under test: prints what each kind of process got, as JSON.

Arguments: of main, spawn and ray (a task and an actor), those to ask.
"""

import importlib.util
import json
import multiprocessing
import shutil
import sys
import tempfile

if sys.path[0].endswith("special_install"):
    sys.path[0] = ""  # as with `python -m`: the working directory comes first


def facts():
    """Where this process has the fork and upstream from."""
    import verl.crosscheck
    import verl.protocol
    import verl.utils.rollout_skip
    from verl.crosscheck.installation import read_installation

    return {
        "fork": [verl.crosscheck.__file__, verl.utils.rollout_skip.__file__],
        "upstream": verl.protocol.__file__,
        "problems": read_installation().problems,
    }


def config():
    """The fork's keys in Hydra's composition: one that was set, and one in a group."""
    from hydra import compose, initialize_config_module

    with initialize_config_module("verl.trainer.config", version_base=None):
        composed = compose("ppo_trainer", overrides=["trainer.share_data=ckpt"])
    return [composed.trainer.share_data, composed.actor_rollout_ref.rollout.skip_index]


def spawned():
    """In a process that inherits nothing."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(facts)


def by_ray():
    """In a task and in an actor of a Ray of our own."""
    import ray

    folder = tempfile.mkdtemp(prefix="r", dir="/tmp")
    ray.init(num_cpus=1, include_dashboard=False, _temp_dir=folder, logging_level="ERROR", log_to_driver=False)

    class Actor:
        def facts(self):
            return facts()

    try:
        found = {"task": ray.get(ray.remote(facts).remote(), timeout=120)}
        return {**found, "actor": ray.get(ray.remote(Actor).remote().facts.remote(), timeout=120)}
    finally:
        ray.shutdown()
        shutil.rmtree(folder, ignore_errors=True)


def main(processes):
    # These two before anything of verl is imported.
    found = {"config": config(), "path": list(importlib.util.find_spec("verl").submodule_search_locations)}
    if "main" in processes:
        found["main"] = facts()
    if "spawn" in processes:
        found["spawn"] = spawned()
    if "ray" in processes:
        found.update(by_ray())
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1:])
