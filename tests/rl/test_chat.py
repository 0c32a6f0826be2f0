"""Messages to tokens: what is generated from is what the template renders, in every family of templates."""

import copy

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from talkers import ENDS, chat, ids

from flwr_agent.errors import ConfigError
from flwr_agent.rl.chat import Chat
from flwr_agent.rl.tiny import to_tokenizer

FAMILIES = ["chatml", "headers"]
WORDS = st.text(st.characters(codec="utf-8", exclude_categories=("Cs", "Cc")), min_size=1, max_size=12).map(
    lambda text: text.strip() or "x"
)


def turn(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


def rendered(talk: Chat, turns: list[dict[str, str]]) -> list[int]:
    return talk.tokenizer.apply_chat_template(turns, add_generation_prompt=True, tokenize=True, return_dict=False)


@pytest.mark.parametrize("family", [*FAMILIES, "inst"])
def test_windowed_prompts_are_single_message_conversations(family):
    messages = ["look around", "where?\n\n- here", "ünïcode <|im_end|>"]
    talk = chat(family)
    assert talk.prompts(messages) == [rendered(talk, [turn("user", message)]) for message in messages]


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("system", ["", "Play well."])
@settings(max_examples=25)
@given(messages=st.lists(WORDS, min_size=1, max_size=4), answers=st.lists(WORDS, min_size=4, max_size=4))
def test_a_conversation_in_pieces_is_the_conversation_rendered_whole(family, system, messages, answers):
    talk = chat(family)
    turns = [turn("system", system)] if system else []
    context = talk.opening(system, messages[0])
    turns.append(turn("user", messages[0]))
    for answer, message in zip(answers, messages[1:], strict=False):
        said = ids(answer + ENDS[family], family)
        context += said + talk.continuation(said, message)
        turns += [turn("assistant", answer), turn("user", message)]
    assert context == rendered(talk, turns)


@pytest.mark.parametrize("family", [*FAMILIES, "inst"])
def test_an_answer_that_was_cut_off_is_ended_by_the_template(family):
    talk, said, end = chat(family), ids("left", family), ids(ENDS[family], family)
    cut, ended = talk.continuation(said, "next"), talk.continuation([*said, *end], "next")
    assert cut.count(end[0]) == ended.count(end[0]) + 1
    assert cut[-len(ended) :] == ended


def test_a_blank_that_the_template_writes_before_the_end_does_not_end_an_answer_twice():
    talk, end = chat("inst"), ids("</s>")
    assert talk.continuation([*ids("left"), *end], "next") == ids("[INST] next [/INST]")
    assert talk.continuation(ids("left"), "next") == ids(" </s>[INST] next [/INST]")


def test_another_end_than_the_templates_is_followed_by_the_templates():
    talk = chat("chatml")
    said = [*ids("left"), talk.tokenizer.eos_token_id]
    assert talk.continuation(said, "next") == ids(
        "<|im_end|>\n<|im_start|>user\nnext<|im_end|>\n<|im_start|>assistant\n"
    )


def test_a_template_that_forgets_reasoning_leaves_the_glue_alone():
    said = ids("<think>far</think>left<|im_end|>")
    assert chat("forgetful").continuation(said, "next") == chat("chatml").continuation(said, "next")


def test_a_message_may_quote_the_mark_that_finds_the_glue():
    quoted = "\u2402answer\u2402 twice \u2402answer\u2402"
    said = ids("left<|im_end|>")
    assert chat().text(chat().continuation(said, quoted)) == f"\nuser\n{quoted}\nassistant\n"


def test_a_template_that_rewrites_answers_is_refused_in_concat_mode_only():
    talk = chat("shouting")
    with pytest.raises(ConfigError, match=r"rollout\.mode='concat': .*rewrites answers; use windowed"):
        talk.continuation(ids("left"), "next")
    assert talk.eos_ids == {talk.tokenizer.eos_token_id}
    assert talk.text(talk.prompts(["go"])[0]).endswith("GO\nassistant\n")


@pytest.mark.parametrize("family", ENDS)
def test_answers_end_at_the_tokenizers_end_and_at_the_templates(family):
    talk = chat(family)
    assert talk.eos_ids == {talk.tokenizer.eos_token_id, *ids(ENDS[family], family)}


def test_without_a_padding_token_an_end_token_pads():
    assert chat().tokenizer.pad_token_id is None
    assert chat().pad_id in chat().eos_ids
    assert Chat(to_tokenizer(["a"])).pad_id == 0


def test_text_is_what_was_said_without_special_tokens():
    assert chat().text(ids("go left<|im_end|>")) == "go left"


@pytest.mark.parametrize("is_cleaned", [False, True])
def test_text_is_what_the_tokenizer_makes_of_it(is_cleaned):
    talk = Chat(copy.deepcopy(chat().tokenizer))
    talk.tokenizer.clean_up_tokenization_spaces = is_cleaned
    talk.tokenizer.clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output = is_cleaned
    said = ids("go left , then stop .<|im_end|>")
    assert talk.text(said) == talk.tokenizer.decode(said, skip_special_tokens=True)
    assert talk.text(said).endswith("left, then stop." if is_cleaned else "left , then stop .")
