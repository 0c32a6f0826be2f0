import json

from ledgers import client

from server_app import client_metrics


def test_every_accepted_client_round_has_a_file_in_the_published_form(tmp_path):
    lines = [client(1, 14, 0.5), client(1, 81, 0.0, status="failed", reason="x"), client(2, 4, 0.25)]
    client_metrics.write(tmp_path, lines, epochs=3)
    files = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.json"))
    assert files == ["round_1/client_14/json_logs/metrics.json", "round_2/client_4/json_logs/metrics.json"]
    ((entry,),) = [json.loads((tmp_path / files[0]).read_text())]
    assert entry.keys() == {"step", "metrics"}
    assert entry["step"] == 3
    assert entry["metrics"]["critic/rewards/mean"] == 5.0
    assert entry["metrics"]["actor/entropy"] == 1.0
    assert entry["metrics"]["global_seqlen/mean"] == 100.0
    assert all(isinstance(value, float) for value in entry["metrics"].values())
