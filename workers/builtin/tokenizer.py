"""Builds the tokenizer: a stock CLIPTokenizer in which every word of the grammar, in both languages, is one token."""

from itertools import pairwise

from transformers import CLIPTokenizer

from workers.builtin.words import meanings

START, END = "<|startoftext|>", "<|endoftext|>"
MAX_TOKENS = 32
WORD_END = "</w>"


def build() -> CLIPTokenizer:
    """A byte-level tokenizer: any text has tokens, the words of the grammar have one each."""
    merges = learn_merges(list(meanings()))
    letters = list(byte_letters().values())
    entries = [*letters, *(letter + WORD_END for letter in letters)]
    entries += [first + second for first, second in merges]
    entries += [START, END]
    vocabulary = {entry: number for number, entry in enumerate(dict.fromkeys(entries))}
    return CLIPTokenizer(vocab=vocabulary, merges=merges, model_max_length=MAX_TOKENS)


def shared_rows(tokenizer: CLIPTokenizer) -> list[int]:
    """For each token the row of the embedding it shares: words with their concept, all debris with one row."""
    vocabulary: dict[str, int] = tokenizer.get_vocab()
    debris = vocabulary["!" + WORD_END]
    rows = [debris] * len(vocabulary)
    first_of: dict[str, int] = {}
    for word, concept in meanings().items():
        number = vocabulary[_spelled(word) + WORD_END]
        rows[number] = first_of.setdefault(concept, number)
    for special in (START, END):
        rows[vocabulary[special]] = vocabulary[special]
    return rows


def learn_merges(words: list[str]) -> list[tuple[str, str]]:
    """Merges that make each word one token.

    A later merge has a lower rank and cannot touch a word that earlier merges have made whole.
    """
    ranks: dict[tuple[str, str], int] = {}
    for word in words:
        pieces = split(word, ranks)
        while len(pieces) > 1:
            ranks[pieces[0], pieces[1]] = len(ranks)
            pieces = split(word, ranks)
    return list(ranks)


def split(word: str, ranks: dict[tuple[str, str], int]) -> list[str]:
    """The pieces of a word under the merges so far, lowest rank first."""
    spelled = _spelled(word)
    pieces = [*spelled[:-1], spelled[-1] + WORD_END]
    while len(pieces) > 1:
        pairs = [pair for pair in pairwise(pieces) if pair in ranks]
        if not pairs:
            break
        best = min(pairs, key=ranks.__getitem__)
        joined: list[str] = []
        for piece in pieces:
            if joined and (joined[-1], piece) == best:
                joined[-1] += piece
            else:
                joined.append(piece)
        pieces = joined
    return pieces


def byte_letters() -> dict[int, str]:
    """The printable letter that byte-level tokenizers write for each byte. Source: GPT-2's encoder."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    letters = {byte: chr(byte) for byte in printable}
    for byte in range(256):
        if byte not in letters:
            letters[byte] = chr(256 + len(letters) - len(printable))
    return letters


def _spelled(word: str) -> str:
    letters = byte_letters()
    return "".join(letters[byte] for byte in word.encode())
