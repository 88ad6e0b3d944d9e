"""Sweeps on a scheduler with workers that are processes of their own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import margay
import pytest
from margay import _margay, distributed, files

pytest.importorskip("distributed")

GRID: dict[str, Any] = {
    "device": "intel-series2plus-24mb",
    "selection": ["greedy", "cat"],
    "over_provisioning": "0.1..0.3:0.1",
    "seeds": 4,
}


def rows(sweep: margay.Sweep) -> list[dict[str, Any]]:
    return sweep.table.rows()


def finished(path: Path) -> list[str]:
    """The keys of the finished points of a file, in the order in which they were written."""
    if not path.exists():
        return []
    lines = path.read_bytes().split(b"\n")[1:-1]
    return [json.loads(line)["point"] for line in lines]


class Cluster:
    """A scheduler and its workers, each with its own folder for temporary files."""

    def __init__(self, folder: Path, workers: int) -> None:
        self.folder = folder
        self.file = folder / "scheduler.json"
        self.processes: list[subprocess.Popen[bytes]] = []
        self.start(
            "dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", self.file
        )
        while not self.file.exists():
            time.sleep(0.05)
        self.address: str = json.loads(self.file.read_text())["address"]
        self.workers = [self.worker() for _ in range(workers)]

    def start(self, program: str, *words: object, **env: str) -> subprocess.Popen[bytes]:
        log = (self.folder / f"{program}-{len(self.processes)}.log").open("wb")
        process = subprocess.Popen(
            [sys.executable, "-m", f"distributed.cli.{program}", *map(str, words)],
            env={**os.environ, **env},
            stdout=log,
            stderr=log,
        )
        self.processes.append(process)
        return process

    def worker(self) -> subprocess.Popen[bytes]:
        own = self.folder / f"worker-{len(self.processes)}"
        own.mkdir()
        words = ("--no-nanny", "--no-dashboard", "--nthreads", 1, "--local-directory", own)
        return self.start("dask_worker", self.address, *words, TMPDIR=str(own))

    def end(self) -> None:
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    made = Cluster(tmp_path_factory.mktemp("cluster"), 2)
    yield made
    made.end()


def test_rows_of_a_cluster_are_the_local_ones_and_each_is_there_once(cluster: Cluster, tmp_path: Path) -> None:
    local = margay.sweep("hot-cold:90/10,writes=20000", **GRID)
    kept = tmp_path / "kept.points"
    far = margay.sweep("hot-cold:90/10,writes=20000", engine="dask", scheduler=cluster.address, finished=kept, **GRID)
    assert rows(far) == rows(local)
    assert len(rows(far)) == 24
    assert len(finished(kept)) == len(set(finished(kept))) == 24
    # What is finished is not run again: no scheduler is asked.
    again = margay.sweep(
        "hot-cold:90/10,writes=20000", engine="dask", scheduler="tcp://127.0.0.1:1", finished=kept, **GRID
    )
    assert rows(again) == rows(local)
    assert len(finished(kept)) == 24


def test_a_worker_that_is_killed_in_the_middle_costs_no_row(tmp_path: Path) -> None:
    kept = tmp_path / "kept.points"
    own = Cluster(tmp_path, 2)
    try:
        killed: list[int] = []

        def kill() -> None:
            while len(finished(kept)) < 3:
                time.sleep(0.02)
            killed.append(len(finished(kept)))
            own.workers[0].send_signal(signal.SIGKILL)

        thread = threading.Thread(target=kill, daemon=True)
        thread.start()
        source = "hot-cold:90/10,writes=150000"
        far = margay.sweep(source, engine="dask", scheduler=own.file, finished=kept, **GRID)
        thread.join(60)
        assert killed
        assert killed[0] < 24, "the sweep was over before the worker was killed"
        assert own.workers[0].wait(60) == -signal.SIGKILL
    finally:
        own.end()
    assert len(finished(kept)) == len(set(finished(kept))) == 24
    assert rows(far) == rows(margay.sweep(source, **GRID))


def test_without_scheduler_or_worker_the_error_says_so_and_nothing_is_written(tmp_path: Path) -> None:
    import dask

    with (
        dask.config.set({"distributed.comm.timeouts.connect": "2s"}),
        pytest.raises(margay.RunError, match="no scheduler"),
    ):
        margay.sweep("random,writes=2000", engine="dask", scheduler="tcp://127.0.0.1:1", **GRID)
    own = Cluster(tmp_path, 0)
    try:
        grid = margay.grid("random,writes=2000", **GRID)
        kept = tmp_path / "kept.points"
        with pytest.raises(margay.RunError, match=r"no worker is left .* 0 of 24 points are finished"):
            distributed.run_grid(grid, kept, False, own.address, None, patience=2.0)
        assert finished(kept) == []
    finally:
        own.end()


def test_wrong_engines_and_schedulers_are_refused() -> None:
    with pytest.raises(margay.UsageError, match="engine = spark"):
        margay.sweep("random,writes=2000", engine="spark", **GRID)
    with pytest.raises(margay.UsageError, match="add engine='dask'"):
        margay.sweep("random,writes=2000", scheduler="tcp://127.0.0.1:1", **GRID)


class Served:
    """A folder over HTTP, with the number of times that each file was read."""

    def __init__(self, folder: Path) -> None:
        gets: list[str] = []
        self.gets = gets

        class Handler(SimpleHTTPRequestHandler):
            def do_GET(self) -> None:
                gets.append(self.path)
                super().do_GET()

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder)))
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of this test alone."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    monkeypatch.setattr(files, "_found", {})
    monkeypatch.setattr(files, "_fetched", {})
    return folder


def test_a_trace_over_http_is_read_once_by_each_worker(cluster: Cluster, own_cache: Path, tmp_path: Path) -> None:
    pytest.importorskip("aiohttp")
    folder = tmp_path / "served"
    folder.mkdir()
    margay.Trace.generate("zipf:0.9,writes=30000", pages=2000).save(folder / "zipf.mgt")
    served = Served(folder)
    options: dict[str, Any] = {"selection": ["greedy", "cat", "fifo"], "utilization": "0.7..0.9:0.1", "repeat": 3}
    try:
        far = margay.sweep(f"{served.url}/zipf.mgt", engine="dask", scheduler=cluster.address, **options)
        assert served.gets.count("/zipf.mgt") <= 1 + len(cluster.workers)
        with pytest.raises(margay.InputError, match=r"none\.mgt: no such file"):
            margay.sweep(f"{served.url}/none.mgt", engine="dask", scheduler=cluster.address, **options)
    finally:
        served.server.shutdown()
    assert rows(far) == rows(margay.sweep(str(folder / "zipf.mgt"), **options))
    assert {row["source"] for row in rows(far)} == {"zipf.mgt"}


def test_a_trace_of_any_file_system_of_fsspec_is_read(own_cache: Path, tmp_path: Path) -> None:
    import fsspec

    margay.Trace.generate("zipf:0.9,writes=3000", pages=500).save(tmp_path / "zipf.mgt")
    with fsspec.open("memory://bucket/zipf.mgt", "wb") as target:
        target.write((tmp_path / "zipf.mgt").read_bytes())
    near = margay.sweep(str(tmp_path / "zipf.mgt"), selection=["greedy", "cat"])
    assert rows(margay.sweep("memory://bucket/zipf.mgt", selection=["greedy", "cat"])) == rows(near)
    path = Path(margay.fetch("memory://bucket/zipf.mgt"))
    assert path.read_bytes() == (tmp_path / "zipf.mgt").read_bytes()
    assert path.is_relative_to(own_cache)
    with pytest.raises(margay.InputError, match="no such file"):
        margay.fetch("memory://bucket/none.mgt")
    with pytest.raises(margay.InputError, match="gopher"):
        margay.fetch("gopher://bucket/none.mgt")
    # Nothing half-read is left behind.
    assert [part.name for part in own_cache.rglob("part-*")] == []


def test_a_cache_that_cannot_be_used_is_an_error_of_the_run(own_cache: Path) -> None:
    import fsspec

    with fsspec.open("memory://bucket/a.mgt", "wb") as target:
        target.write(b"a")
    cache = own_cache / f"margay-files-{os.getuid()}"
    cache.write_text("a file")
    with pytest.raises(margay.RunError, match=r"margay-files-\d+: .*set TMPDIR"):
        margay.fetch("memory://bucket/a.mgt")
    # On a worker it fails the points that need the file, and no others.
    place = files.Place("memory://bucket/a.mgt", "0" * 16)
    settings = [
        json.dumps({"source": "a"}),
        json.dumps({"source": "random", "device": "spi-nor-16mb", "device-writes": 1}),
    ]
    results, _ = distributed.run_batch(margay.__version__, [("", one) for one in settings], {("source", "a"): place})
    assert [row is None for row, _, _ in results] == [True, False]
    assert (results[0][1], "set TMPDIR" in results[0][2]) == ("run", True)
    cache.unlink()
    cache.symlink_to(own_cache)
    with pytest.raises(margay.RunError, match="no folder of this user; set TMPDIR"):
        margay.fetch("memory://bucket/a.mgt")


def test_a_file_with_the_name_of_a_device_is_not_the_device(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    margay.Trace.generate("zipf:0.9,writes=3000", pages=500).save("spi-nor-16mb")
    (tmp_path / "chip.toml").write_text(margay.Device("spi-nor-16mb").to_toml())
    grid = margay.grid("spi-nor-16mb", device=["spi-nor-16mb", "chip.toml"])
    named = [files.files_of(_margay.point_settings(grid, at)) for at in range(len(grid))]
    assert named == [[("source", "spi-nor-16mb")], [("source", "spi-nor-16mb"), ("device", "chip.toml")]]
    # Nor is it on a worker, which is given another path for the file.
    settings = _margay.point_settings(grid, 0)
    place = files.place_of("spi-nor-16mb")
    assert files.files_of_text(settings, {named[0][0]: place}) == {("source", "spi-nor-16mb"): place}
    fields = json.loads(files.moved(settings, {named[0][0]: "/elsewhere"}))
    assert (fields["source"], fields["device"]) == ("/elsewhere", "spi-nor-16mb")


def test_a_file_that_a_worker_does_not_have_fails_its_points_and_names_the_worker(
    cluster: Cluster, tmp_path: Path
) -> None:
    path = tmp_path / "zipf.mgt"
    margay.Trace.generate("zipf:0.9,writes=3000", pages=500).save(path)
    place = files.place_of(str(path))
    with pytest.raises(margay.InputError, match="another content"):
        files.here(files.Place(place.place, "0" * 16))
    grid = margay.grid([str(path)], selection=["greedy", "cat"])
    points = distributed.points_of(grid, range(len(grid)))
    gone = files.Place(str(tmp_path / "gone.mgt"), place.hash)
    results, _ = distributed.run_batch(
        margay.__version__, [(p.key, p.settings) for p in points], {("source", str(path)): gone}
    )
    assert [row for row, _, _ in results] == [None, None]
    assert {kind for _, kind, _ in results} == {"input"}
    assert "no such file on the worker" in results[0][2]
    # The same from end to end: it is gone when the points are run.
    done: list[str] = []
    with distributed.client_of(cluster.address) as client:
        driver = distributed._Driver(client, points, lambda key, _row: done.append(key), 60.0)
        driver.places[str(path)] = gone
        failures = driver.run()
    assert done == []
    assert len(failures) == 2
    assert "gone.mgt: no such file on the worker" in failures[0][2]


def test_a_worker_of_another_version_is_refused() -> None:
    with pytest.raises(margay.UsageError, match="install the same version"):
        distributed.run_batch("0.0.1", [], {})


def test_a_trace_in_memory_is_not_sent(cluster: Cluster) -> None:
    trace = margay.Trace.generate("zipf:0.9,writes=3000", pages=500)
    with pytest.raises(margay.UsageError, match="save it to a file"):
        margay.sweep(trace, engine="dask", scheduler=cluster.address, selection=["greedy", "cat"])


def test_a_full_disk_is_an_error_and_the_sweep_goes_on_when_there_is_room(cluster: Cluster, tmp_path: Path) -> None:
    kept = tmp_path / "kept.points"
    script = f"""
import margay, resource
resource.setrlimit(resource.RLIMIT_FSIZE, (16384, 16384))
margay.sweep("random,writes=2000", engine="dask", scheduler={cluster.address!r}, finished={str(kept)!r}, **{GRID!r})
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert ended.returncode == 1
    assert "margay.errors.RunError" in ended.stderr
    assert "finished points are kept" in ended.stderr
    before = finished(kept)
    assert 0 < len(before) < 24
    far = margay.sweep("random,writes=2000", engine="dask", scheduler=cluster.address, finished=kept, **GRID)
    assert rows(far) == rows(margay.sweep("random,writes=2000", **GRID))
    assert finished(kept)[: len(before)] == before
    assert len(finished(kept)) == 24


def test_the_command_on_a_cluster_writes_the_local_file(cluster: Cluster, command: str, tmp_path: Path) -> None:
    words = (
        "sweep hot-cold:90/10,writes=20000 -d intel-series2plus-24mb -s greedy,cat --utilization 0.7,0.8 --seeds 3 -q"
    )
    env = {**os.environ, "MARGAY_PYTHON": sys.executable}

    def run(*more: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([command, *words.split(), *more], capture_output=True, text=True, env=env, cwd=tmp_path)

    assert run("-o", "near.csv").returncode == 0
    far = run("-o", "far.csv", "--engine", "dask", "--scheduler", cluster.address)
    assert far.returncode == 0, far.stderr
    assert (tmp_path / "far.csv").read_bytes() == (tmp_path / "near.csv").read_bytes()
    assert len(set(finished(tmp_path / "far.csv.points"))) == 12
    none = run("-o", "none.csv", "--engine", "dask", "--scheduler", "tcp://127.0.0.1:1")
    assert none.returncode == 1
    assert "no scheduler of Dask answers" in none.stderr
    assert not (tmp_path / "none.csv").exists()


def test_a_cluster_of_this_machine_needs_no_address() -> None:
    near = margay.sweep("random,writes=2000", device="intel-series2plus-24mb", seeds=3)
    far = margay.sweep("random,writes=2000", device="intel-series2plus-24mb", seeds=3, engine="dask", jobs=1)
    assert rows(far) == rows(near)


class Dies:
    """A cluster of which every worker dies of one point."""

    class Future:
        def __init__(self, error: Exception | None, result: Any) -> None:
            self.error, self.outcome = error, result
            self.status = "error" if error else "finished"

        def add_done_callback(self, call: Any) -> None:
            call(self)

        def exception(self) -> Exception | None:
            return self.error

        def result(self) -> Any:
            return self.outcome

        def release(self) -> None:
            pass

    scheduler = None
    status = "running"

    def nthreads(self) -> dict[str, int]:
        return {"one": 1}

    def submit(self, _run: Any, _version: str, batch: list[tuple[str, str]], _places: Any, pure: bool) -> Dies.Future:
        class KilledWorker(Exception):
            pass

        if any(key == "5" for key, _ in batch):
            return self.Future(KilledWorker(), None)
        return self.Future(None, ([(f"row {key}", "", "") for key, _ in batch], 0.001))

    def cancel(self, _futures: Any, force: bool) -> None:
        pass


def test_a_point_that_kills_its_workers_is_named_and_the_others_are_finished() -> None:
    points = [distributed.Point(str(at), f"point {at}", "{}") for at in range(40)]
    done: dict[str, str] = {}

    def emit(key: str, row: str) -> None:
        assert key not in done
        done[key] = row

    failures = distributed._Driver(Dies(), points, emit, 60.0).run()
    assert [(at, kind) for at, kind, _ in failures] == [(5, "run")]
    assert "died" in failures[0][2]
    assert sorted(done, key=int) == [str(at) for at in range(40) if at != 5]
