from hypothesis import given
from hypothesis import strategies as st

from envs.base import View
from envs.prompts import answer_format, compact, past, plain_answer, project


def test_the_first_action_tag_is_taken_lower_cased():
    text = "<think>a</think> <action> Open Fridge 1 </action><action>look</action>"
    assert project(text, tail=30) == ("open fridge 1", True)


def test_without_a_tag_the_tail_is_tried_and_the_format_is_broken():
    assert project("<think>x</think> I will now go to fridge 1", tail=14) == ("go to fridge 1", False)


def test_a_missing_thought_or_a_cjk_character_breaks_the_format_only():
    assert project("<action>look</action>", tail=30) == ("look", False)
    assert project("<THINK>a</THINK><action>look</action>", tail=30) == ("look", False)
    assert project("<think>看</think><action>look</action>", tail=30) == ("look", False)


@given(st.text())
def test_every_text_has_an_action(text):
    action, is_valid = project(text, tail=30)
    assert action == action.strip()
    assert isinstance(is_valid, bool)
    assert "\n" not in plain_answer(text)


def test_history_is_numbered_absolutely():
    view = View("t", "now", None, (("a ", "look"), ("b", "inventory")), num_steps=7)
    lines = past(view).splitlines()
    assert lines[1] == "[Observation 6: 'a', Action 6: 'look']"
    assert lines[2] == "[Observation 7: 'b', Action 7: 'inventory']"
    assert lines[3].endswith("step 8.")


def test_the_first_turn_has_no_past():
    assert past(View("t", "now", None)) == ""


def test_the_answer_format_names_both_tags_once():
    text = answer_format(goal=" and pick what helps the task")
    assert text.count("<think>") == text.count("<action>") == 1
    assert "what helps the task" in text


def test_the_compact_prompt_holds_task_history_and_observation_and_nothing_else():
    view = View("put a cup in sinkbasin", "c", ("look",), (("a", "look"), ("b", "open x")), num_steps=9)
    assert compact(view, str.upper) == "task : put a cup in sinkbasin\nA > look\nB > open x\nC >"
