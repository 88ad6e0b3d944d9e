"""Advice on policies and over-provisioning: the search of ``margay advise``, on a cluster or with Optuna if that is wanted."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import dataclass, field
from os import PathLike
from typing import TYPE_CHECKING, Any

from margay import _checks, _margay, distributed, files
from margay.errors import RunError, UsageError

if TYPE_CHECKING:
    from typing import Unpack

    from margay._options import GridOptions, Source


@dataclass(frozen=True)
class Advice:
    """An answer. ``print`` shows it in plain words."""

    #: ``"yes"``, ``"no"`` or ``"uncertain"``.
    verdict: str
    #: Why it is not certain; empty otherwise.
    why: str
    #: The selection, placement and leveling that are advised, or come nearest.
    policies: dict[str, str]
    #: Data pages / exported pages - 1.
    over_provisioning: float
    #: Each over-provisioning under these policies: capacity in bytes, ``wa`` with half its 95 % interval, ``life`` in years.
    steps: list[dict[str, Any]]
    #: What was run at the advised over-provisioning, the advised policies first.
    rivals: list[dict[str, Any]]
    #: What was not looked at, in sentences.
    not_looked_at: list[str]
    #: Runs that the answer rests on.
    runs: int
    #: The answer in plain words.
    text: str
    #: All of it, as ``margay advise --format json`` prints it.
    fields: dict[str, Any] = field(repr=False)

    def __str__(self) -> str:
        """The answer in plain words."""
        return self.text

    def _repr_html_(self) -> str:
        from html import escape

        return f"<pre>{escape(self.text)}</pre>"


def advise(
    source: Source,
    *,
    years: float,
    per_day: float | str | None = None,
    seeds: int | None = None,
    jobs: int | None = None,
    finished: str | PathLike[str] | None = None,
    engine: str = "local",
    scheduler: object = None,
    trials: int = 0,
    **options: Unpack[GridOptions],
) -> Advice:
    """Say which policies and how much over-provisioning make the flash last ``years``, as ``margay advise`` does.

    ``per_day`` is how much the host writes in a day, in bytes or as ``"20G"``; without it the times of the source say so.
    ``selection``, ``placement`` and ``over_provisioning`` narrow the search, and take lists and ranges. Finished runs are kept
    in the file ``finished``. With ``engine="dask"`` they are done by the cluster of ``scheduler``.

    With ``trials=N`` Optuna tries N combinations of the parameters of the policies that were advised, at the over-provisioning
    that was advised; the best of them is then measured as everything else is. This is for policies with several parameters,
    whose grid would be too large.

    A source can be a URL of fsspec, as for :func:`margay.sweep`. Raises as that does.
    """
    is_for_cluster, many = _checks.wants_cluster(engine, scheduler), _checks.count("seeds", seeds)
    trials, threads = _checks.trials(trials), _checks.jobs(jobs) or os.cpu_count() or 1
    if trials:
        # What is missing is told before hours of runs, and not after them.
        _optuna()
    rate = _margay.size_bytes(per_day) if isinstance(per_day, str) else per_day
    settings = {"source": files.fetched(source), **options}
    done = _margay.Finished(finished)

    def ask(also: Sequence[tuple[str, str]], runner: Any) -> Advice:
        answer = json.loads(_margay.advise(settings, years, rate, many, list(also), done, threads, runner))
        known = {key: answer[key] for key in Advice.__dataclass_fields__ if key in answer}
        return Advice(**{"why": "", "fields": answer, **known})

    def search(runner: Any) -> Advice:
        advice = ask([], runner)
        # Where the device is too small for the data, no run was done that says what to look for.
        if not trials or not advice.runs:
            return advice
        found = _tuned(settings, advice, trials, done)
        # What was advised stays in the race: the search starts elsewhere now.
        return ask([(advice.policies["selection"], advice.policies["placement"]), found], runner)

    if not is_for_cluster:
        return search(None)
    with distributed.client_of(scheduler, jobs) as client:

        def run(points: _margay.Grid, kept: _margay.Finished) -> distributed.Failures:
            left = kept.left(points)
            failures = distributed.run_points(distributed.points_of(points, left), kept.add, client)
            return [(left[at], kind, text) for at, kind, text in failures]

        return search(run)


def _suggest(trial: Any, policy: str, parameters: Sequence[dict[str, Any]]) -> str:
    """A policy with parameters that Optuna chooses."""
    chosen = []
    for parameter in parameters:
        key, kind, name = parameter["key"], parameter["kind"], f"{policy}.{parameter['key']}"
        if kind == "choice":
            chosen.append(f"{key}={trial.suggest_categorical(name, parameter['names'])}")
        elif kind == "number":
            low, high = parameter["min"], min(parameter["max"], max(64, 64 * parameter["default"]))
            chosen.append(f"{key}={trial.suggest_int(name, max(low, 1), high, log=True)}")
        elif kind == "share":
            chosen.append(f"{key}={trial.suggest_float(name, 0.01, 1.0)}")
        elif kind == "scale":
            factor = trial.suggest_float(name, 1 / 64, 64, log=True)
            chosen.append(f"{key}={parameter['value'] * factor:.6g}{parameter['unit']}")
    return f"{policy}:{','.join(chosen)}" if chosen else policy


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise RunError("trials: Optuna is not installed: python3 -m pip install 'margay[advise]'") from None
    return optuna


def _tuned(settings: dict[str, Any], advice: Advice, trials: int, done: _margay.Finished) -> tuple[str, str]:
    """The best pair that Optuna finds around the advised one, by write amplification."""
    optuna = _optuna()
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    names = {key: advice.policies[key].split(":")[0] for key in ("selection", "placement")}
    tables = {key: _margay.policy_parameters(key, name) for key, name in names.items()}
    leveling, over_provisioning = advice.policies["leveling"], advice.fields["over_provisioning_asked"]
    # The same names give the same search.
    study = optuna.create_study(direction="minimize", sampler=optuna.samplers.TPESampler(seed=1))

    def pair(trial: Any) -> tuple[str, str]:
        return (
            _suggest(trial, names["selection"], tables["selection"]),
            _suggest(trial, names["placement"], tables["placement"]),
        )

    for _ in range(trials):
        trial = study.ask()
        selection, placement = pair(trial)
        try:
            point = _margay.advice_point(settings, selection, placement, leveling, over_provisioning)
            kept = done.row(point, 0)
            row = point.run(0) if kept is None else kept
        except (UsageError, RunError):
            # These parameters are impossible, or are on this device.
            study.tell(trial, state=optuna.trial.TrialState.FAIL)
            continue
        if kept is None:
            done.add(point.key(0), row)
        study.tell(trial, json.loads(row)["wa_warm"])
    try:
        best = study.best_trial
    except ValueError:
        return advice.policies["selection"], advice.policies["placement"]
    return pair(optuna.trial.FixedTrial(best.params))
