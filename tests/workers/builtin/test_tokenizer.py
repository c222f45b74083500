"""Every word of both languages is one token of a stock CLIP tokenizer."""

import pytest
from transformers import CLIPTokenizer

from workers.builtin import MODEL_FOLDER
from workers.builtin.tokenizer import MAX_TOKENS, build, learn_merges, shared_rows, split
from workers.builtin.words import CONCEPTS, meanings


@pytest.fixture(scope="module")
def tokenizer() -> CLIPTokenizer:
    return build()


@pytest.mark.parametrize("word", sorted(meanings()))
def test_a_word_of_the_grammar_is_one_token(tokenizer: CLIPTokenizer, word: str) -> None:
    assert len(tokenizer.tokenize(word)) == 1


def test_all_words_of_a_concept_share_one_embedding(tokenizer: CLIPTokenizer) -> None:
    rows = shared_rows(tokenizer)
    first = {words[0]: rows[tokenizer(words[0]).input_ids[1]] for words in CONCEPTS.values()}
    assert len(set(first.values())) == len(CONCEPTS)
    for words in CONCEPTS.values():
        assert {rows[tokenizer(word).input_ids[1]] for word in words} == {first[words[0]]}


def test_case_joiners_and_arabic_letters_do_not_matter(tokenizer: CLIPTokenizer) -> None:
    rows = shared_rows(tokenizer)
    for one, other in [("Red CIRCLE", "red circle"), ("كوچك", "کوچک"), ("٣", "سه")]:
        assert [rows[i] for i in tokenizer(one).input_ids] == [rows[i] for i in tokenizer(other).input_ids]
    assert len(tokenizer.tokenize("پس‌زمینه‌ی سفید")) == 6


def test_any_text_has_tokens_and_none_is_unknown(tokenizer: CLIPTokenizer) -> None:
    assert tokenizer.decode(tokenizer("zebra 😀 ∞").input_ids, skip_special_tokens=True).startswith("zebra")
    assert len(tokenizer("z" * 200, truncation=True).input_ids) == MAX_TOKENS


def test_later_merges_leave_earlier_words_whole() -> None:
    merges = {pair: rank for rank, pair in enumerate(learn_merges(["abab", "bab", "aba"]))}
    assert [len(split(word, merges)) for word in ("abab", "bab", "aba")] == [1, 1, 1]


def test_the_shipped_tokenizer_is_the_one_that_is_built(tokenizer: CLIPTokenizer) -> None:
    shipped = CLIPTokenizer.from_pretrained(MODEL_FOLDER / "tokenizer", local_files_only=True)
    assert shipped.get_vocab() == tokenizer.get_vocab()
    text = "یک دایره‌ی قرمز and 3 blue stars"
    assert shipped(text).input_ids == tokenizer(text).input_ids
