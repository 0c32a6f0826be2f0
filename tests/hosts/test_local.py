import os
from pathlib import Path

from filelock import FileLock

from flwr_agent.hosts import local


def test_simulated_clients_fit_a_machine_with_fewer_cores_than_threads():
    cores = os.cpu_count() or 1
    text = local.Federation(num_nodes=2, threads=cores + 3).simulation()
    assert f"client-resources-num-cpus={cores + 3}" in text
    assert f"init-args-num-cpus={cores + 3}" in text


def test_a_simulation_starts_no_more_processes_than_a_round_has_clients(monkeypatch):
    monkeypatch.setattr(local.os, "cpu_count", lambda: 32)
    assert "init-args-num-cpus=6" in local.Federation(num_nodes=3, threads=2).simulation()


def test_what_a_killed_launcher_left_is_swept_and_what_is_in_use_stays(monkeypatch, tmp_path: Path):
    monkeypatch.setattr(local.tempfile, "gettempdir", lambda: str(tmp_path))
    used, left, foreign = (tmp_path / name for name in ("fa-used", "fa-left", "other"))
    for home in (used, left, foreign):
        (home / "empty").mkdir(parents=True)
        (home / "owner.lock").touch()
    with FileLock(used / "owner.lock"):
        local.sweep_homes()
    assert sorted(home.name for home in tmp_path.iterdir()) == ["fa-used", "other"]
