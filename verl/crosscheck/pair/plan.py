# Copyright 2026 The verl-crosscheck authors
# SPDX-License-Identifier: Apache-2.0
"""Plan the runs of a cross-check: mode, overrides and folder of each. Starts no process and makes no folder.

Names on the disk:

    DIR/scenario_1, DIR/scenario_2, DIR/control     exchange directories, one for each pair of runs
    OUT/runs/scenario_1/a/run.log, command.sh ...   what the runs of a pair leave beside the exchange
    OUT/report.html                                 the report
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from verl.crosscheck.errors import SettingsError
from verl.crosscheck.overrides import assignment
from verl.crosscheck.pair.commands import TrainingCommand, doubts
from verl.crosscheck.settings import MODES, ShareMode

MODES_OF_SCENARIO = {1: MODES, 2: MODES[::-1]}
"""By scenario: `trainer.share_data` of A and of B."""

_DEVICES = re.compile(r"[A-Z_]*VISIBLE_DEVICES")
_DEVICE_FILES = ("nvidia0", "davinci0")


@dataclass(frozen=True)
class PairRequest:
    """What a user asks for.

    Args:
        a_env, b_env: variables for one side alone.
        scenarios: 1, 2 or both, in the order in which they run.
        steps: training steps of each run.
        root: folder of the exchange directories.
        out: folder of logs and report.
        control: whether B is also run against itself.
    """

    a: TrainingCommand
    b: TrainingCommand
    a_env: Mapping[str, str]
    b_env: Mapping[str, str]
    scenarios: tuple[int, ...]
    steps: int
    root: Path
    out: Path
    control: bool = False

    @property
    def report(self) -> Path:
        return self.out / "report.html"


@dataclass(frozen=True)
class Side:
    """One run.

    Args:
        name: `a` or `b`; in a control both are B.
        env: variables for it alone.
        folder: where its own files go.
        overrides: what is appended to its command; by the first one a training shows that they reached it.
        cwd: folder that it is started in; the caller's if None.
    """

    name: str
    label: str
    mode: ShareMode
    command: TrainingCommand
    env: Mapping[str, str]
    folder: Path
    overrides: tuple[str, ...]
    cwd: Path | None = None

    @property
    def log(self) -> Path:
        """Everything it printed."""
        return self.folder / "run.log"


@dataclass(frozen=True)
class PairPlan:
    """Two runs that share an exchange directory.

    Args:
        scenario: 1 or 2; None for the control.
        steps: training steps of each.
    """

    scenario: int | None
    exchange: Path
    steps: int
    sides: tuple[Side, Side]

    @property
    def title(self) -> str:
        return "Control" if self.scenario is None else f"Scenario {self.scenario}"

    @property
    def question(self) -> str:
        """The question that this pair answers."""
        if self.scenario is None:
            return "how far apart are two healthy runs? B against itself."
        if self.scenario == 1:
            return "is A's rollout at fault? A generates and takes B's weights; B trains on A's rollouts."
        return "is A's training at fault? A trains on B's rollouts; B generates and takes A's weights."


def pairs(request: PairRequest) -> list[PairPlan]:
    """Return the pairs in the order in which they run; the control, which shows faults of the set-up, is the first."""
    control = [_control(request)] if request.control else []
    return control + [_scenario(request, number) for number in request.scenarios]


def script(side: Side, overrides: Sequence[str]) -> str:
    """Return what a person types to start a run of this side."""
    exports = [f"export {name}={shlex.quote(value)}" for name, value in side.env.items()]
    return "\n".join([*exports, side.command.line(overrides)])


def require_own_ports(pair: PairPlan) -> None:
    """Raise if the commands of a pair, both on this host, name the same port.

    Raises:
        SettingsError: both name it.
    """
    first, second = pair.sides
    taken = first.command.ports(first.env)
    for port, name in second.command.ports(second.env).items():
        if port in taken:
            raise SettingsError(
                f"{pair.title}: both runs would use port {port} of this host ({first.command.option}: {taken[port]}, "
                f"{second.command.option}: {name}). Leave it out, or give each its own, as with --a-env and --b-env"
            )


def shared_devices(pair: PairPlan, inherited: Mapping[str, str]) -> str:
    """Return the devices that both runs of a pair would use, as `VARIABLE=value`; empty if they share none.

    Args:
        inherited: environment that both have.
    """
    first, second = ({**inherited, **side.env, **side.command.assignments} for side in pair.sides)
    names = [name for name in {**first, **second} if _DEVICES.fullmatch(name)]
    for name in sorted(names):
        one, other = first.get(name), second.get(name)
        if one is not None and other is not None:
            common = sorted(set(one.split(",")) & set(other.split(",")))
            return f"{name}={','.join(common)}" if common else ""
    return "all of them"


def warnings(request: PairRequest, inherited: Mapping[str, str], *, local: bool) -> Iterator[str]:
    """Yield sentences about what may go wrong with a request.

    Args:
        inherited: environment that all runs have.
        local: whether both runs are of this host, and could want the same devices.
    """
    for command in (request.a, request.b):
        yield from doubts(command)
    if not local or not any(Path("/dev", name).exists() for name in _DEVICE_FILES):
        return
    for pair in pairs(request):
        if shared := shared_devices(pair, inherited):
            yield (
                f"{pair.title}: both runs see the same devices ({shared}). If there are not enough for both, "
                "share them out with --a-env and --b-env, such as --a-env CUDA_VISIBLE_DEVICES=0,1 (Ascend: "
                "ASCEND_RT_VISIBLE_DEVICES)."
            )
            return


def report_arguments(request: PairRequest, compared: Sequence[PairPlan], language: str) -> list[str]:
    """Return the arguments of `verl-crosscheck` that make the report of these pairs."""
    directories = {pair.scenario: str(pair.exchange) for pair in compared if pair.scenario is not None}
    control = [str(pair.exchange) for pair in compared if pair.scenario is None]
    return [
        "report",
        *(directories[number] for number in sorted(directories)),
        *(["--scenario", "2"] if list(directories) == [2] else []),
        *(each for directory in control for each in ("--control", directory)),
        *("--output", str(request.report)),
        *("--lang", language),
    ]


def _scenario(request: PairRequest, number: int) -> PairPlan:
    name = f"scenario_{number}"
    commands = (request.a, request.b)
    envs = (request.a_env, request.b_env)
    return _pair(request, number, name, ("A", "B"), MODES_OF_SCENARIO[number], commands, envs)


def _control(request: PairRequest) -> PairPlan:
    """Return the pair of B against itself; the first run uses the devices of A, if A has its own."""
    devices = {name: value for name, value in request.a_env.items() if _DEVICES.fullmatch(name)}
    envs = ({**request.b_env, **devices}, request.b_env)
    return _pair(request, None, "control", ("B, first", "B, second"), MODES, (request.b, request.b), envs)


def _pair(
    request: PairRequest,
    scenario: int | None,
    name: str,
    labels: Sequence[str],
    modes: Sequence[ShareMode],
    commands: Sequence[TrainingCommand],
    envs: Sequence[Mapping[str, str]],
) -> PairPlan:
    exchange = request.root / name
    sides = []
    for short, label, mode, command, env in zip("ab", labels, modes, commands, envs, strict=True):
        folder = request.out / "runs" / name / short
        overrides = _overrides(command, request.steps, mode, exchange, folder)
        sides.append(Side(short, label, mode, command, env, folder, overrides))
    return PairPlan(scenario, exchange, request.steps, (sides[0], sides[1]))


def _overrides(command: TrainingCommand, steps: int, mode: ShareMode, exchange: Path, folder: Path) -> tuple[str, ...]:
    last_step = command.first_step + steps
    values = {
        "trainer.share_data": mode,
        "trainer.share_data_dir": str(exchange),
        "trainer.total_training_steps": last_step,
        # Upstream ends after the epochs, however few steps they have; an epoch has at least one.
        "trainer.total_epochs": last_step,
        "actor_rollout_ref.rollout.calculate_log_probs": True,
        # The default `resume_mode=auto` would go on from what the user's training, or another scenario, has saved.
        "trainer.default_local_dir": str(folder / "checkpoints"),
        "trainer.save_freq": -1,
    }
    return tuple(assignment(key, value, known=True) for key, value in values.items())
