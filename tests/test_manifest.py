import pytest
from fakes import config, model, train
from flwr.app import Array, ArrayRecord, ConfigRecord, MetricRecord

from flwr_agent import manifest, protocol
from flwr_agent.arrays import to_record
from flwr_agent.errors import ProtocolError
from flwr_agent.requests import EvaluateReply

SAID = "I open the fridge"
INT8 = {"strategy__payload": "delta", "strategy__compression": "int8"}


def exchange(keys=None):
    record = protocol.run_record(config(**(keys or {})), experiment="e", base_digest="b")
    record = protocol.addressed(record, round_=1, client_id=0, placement="any")
    asked = protocol.request_content(to_record(model()), record)
    request = protocol.train_request(asked, {})
    return asked, protocol.train_reply_content(request, train(request))


def replaced(content, name, **changes):
    content[name] = type(content[name])({**content[name], **changes})
    return content


@pytest.mark.parametrize("keys", [{}, INT8])
def test_the_manifest_lists_every_array_with_the_bytes_that_are_sent(keys):
    asked, reply = exchange(keys)
    shapes = {name: values.shape for name, values in model().items()}
    lines = manifest.lines(shapes, config(**keys).strategy.compression)
    total = sum(len(array.data) for array in reply["arrays"].values())
    assert f"3 arrays ({total:,} bytes)" in lines[0]
    for name, array in reply["arrays"].items():
        assert f"array {name}: {array.dtype}, {len(array.data):,} bytes" in lines
    protocol.train_reply(reply, asked)


@pytest.mark.parametrize(
    ("tell", "name"),
    [
        (lambda c: c.update({"transcript": ConfigRecord({"text": "I open the fridge"})}), "transcript"),
        (lambda c: replaced(c, "config", prompt="I open the fridge"), "prompt"),
        (lambda c: replaced(c, "metrics", first_token=42), "first_token"),
        (lambda c: replaced(c, "metrics", loss=[1.0, 2.0]), "loss"),
        (lambda c: replaced(c, "arrays", extra=Array(model()["actor/embed"])), "extra"),
    ],
)
def test_a_reply_that_tells_more_than_the_manifest_is_refused_by_name(tell, name):
    asked, reply = exchange()
    tell(reply)
    with pytest.raises(ProtocolError, match=f"{name}.*not in the manifest of what leaves a client"):
        protocol.train_reply(reply, asked)


def test_an_array_of_other_bytes_is_refused():
    asked, reply = exchange()
    array = reply["arrays"]["actor/embed"]
    padded = Array(array.dtype, array.shape, array.stype, array.data + b"I open the fridge")
    reply["arrays"] = ArrayRecord({**reply["arrays"], "actor/embed": padded})
    with pytest.raises(ProtocolError, match=r"actor/embed \(float32, 193 bytes\) is not in the manifest"):
        protocol.train_reply(reply, asked)


def evaluation(**changes):
    fields = {
        "round": 1,
        "metrics": {"success": 0.5, "greedy/env/depth": 2.0, "time/evaluate": 1.0, "tasks": 2.0},
        "outcomes": {"sampled/success": (1.0, 0.0), "greedy/task_score": (0.25, 0.0)},
        "tasks": ("a", "b"),
        "types": ("x", ""),
    }
    return EvaluateReply(**(fields | changes))


def evaluated(reply=None):
    run = config(evaluation__tasks=2)
    record = protocol.for_round(protocol.run_record(run, experiment="e", base_digest="b"), round_=1, placement="any")
    asked = protocol.request_content(to_record(model()), record)
    return asked, protocol.evaluate_reply_content(protocol.evaluate_request(asked), reply or evaluation())


def test_an_evaluation_within_the_manifest_is_taken():
    asked, content = evaluated()
    assert protocol.evaluate_reply(content, asked) == evaluation()


@pytest.mark.parametrize(
    ("tell", "message"),
    [
        (lambda c: c.update({"arrays": to_record(model())}), "'arrays' is not in the manifest"),
        (lambda c: c.update({"transcript": ConfigRecord({"text": SAID})}), "'transcript' is not in the manifest"),
        (lambda c: replaced(c, "config", prompt=SAID), "'prompt' is not in the manifest"),
        (lambda c: replaced(c, "config", tasks=["a", "b", "c"]), "scores 3 tasks, evaluation.tasks=2"),
        (
            lambda c: replaced(c, "config", tasks=["a", SAID * 20]),
            r"id of held-out task 1 \(340 characters\) is not in",
        ),
        (
            lambda c: replaced(c, "config", types=["a\nb", "x"]),
            r"category of held-out task 0 \(3 characters\) is not in",
        ),
        (lambda c: replaced(c, "config", types=["x"]), "types has 1 entries for 2 tasks"),
        (lambda c: replaced(c, "metrics", first_token=42), "'first_token' is not in the manifest"),
        (lambda c: replaced(c, "metrics", success=[1.0, 0.0]), "'success' is not in the manifest"),
        (lambda c: replaced(c, "metrics", **{"outcomes/tokens": [1.0, 2.0]}), "'tokens' is not in the manifest"),
        (lambda c: replaced(c, "metrics", **{"outcomes/sampled/success": [1.0]}), "success has 1 entries for 2 tasks"),
        (
            lambda c: replaced(c, "metrics", **{"outcomes/sampled/success": [1.0, float("nan")]}),
            "sampled/success has a score that is no finite number",
        ),
    ],
)
def test_an_evaluation_that_tells_more_than_the_manifest_is_refused(tell, message):
    asked, content = evaluated()
    tell(content)
    with pytest.raises(ProtocolError, match=message) as error:
        protocol.evaluate_reply(content, asked)
    assert SAID not in str(error.value)


def test_a_client_sends_no_text_in_the_place_of_a_task_and_no_number_that_is_not_listed(caplog):
    with pytest.raises(ProtocolError, match=r"id of held-out task 0 \(340 characters\)") as error:
        evaluated(evaluation(tasks=(SAID * 20, "b")))
    assert SAID not in str(error.value)
    _, content = evaluated(evaluation(metrics={"success": 1.0, "secret": 2.0}))
    assert "secret" not in content["metrics"]
    assert "not sent, as flwr_agent/manifest.py does not list it: secret" in caplog.text


def test_the_manifest_lists_every_number_of_an_evaluation():
    head, *rows = manifest.evaluation_lines(2)
    assert "at most 2 held-out tasks" in head
    for name in ("success", "greedy/env/*", "time/*", "sampled/success, one a task"):
        assert any(row.startswith(f"evaluation number {name}: float64, 8 bytes") for row in rows)
    assert len(rows) == len(manifest.EVALUATION) + len(manifest.OUTCOMES)


def test_a_node_that_says_more_than_who_it_is_is_refused():
    ask = protocol.hello_content()
    answer = protocol.hello_reply_content(ask, {"partition-id": 4})
    replaced(answer, "config", diary=SAID)
    with pytest.raises(ProtocolError, match="'diary' is not in the manifest"):
        protocol.hello_reply(answer)


def test_a_number_that_is_not_listed_stays_with_its_client(caplog):
    record = protocol.addressed(
        protocol.run_record(config(), experiment="e", base_digest="b"), round_=1, client_id=0, placement="any"
    )
    request = protocol.train_request(protocol.request_content(to_record(model()), record), {})
    reply = train(request)
    content = protocol.train_reply_content(
        request, type(reply)(**{**reply_fields(reply), "metrics": {"reward": 1.0, "secret": 2.0}})
    )
    assert dict(content["metrics"]) == {"num-examples": 10, "reward": 1.0}
    assert "not sent, as flwr_agent/manifest.py does not list it: secret" in caplog.text


def reply_fields(reply):
    return {name: getattr(reply, name) for name in ("round", "client_id", "arrays", "num_examples", "metrics")}


def test_records_are_of_the_types_that_flower_averages():
    _, reply = exchange()
    assert isinstance(reply["metrics"], MetricRecord)
