#!/usr/bin/env python3
"""Compares cleave's pieces and ids with those of the `tokenizers` library on 20,000 texts for each pre-tokenizer of
tokenizer_patterns.py and many small expressions: texts of random characters and of real ones, of code points that Unicode
14 (that of Debian 12's PCRE2, and of Python 3.11) has assigned. By hand; needs no data but data/corpus.txt:

    python tests/golden/compare_tokenizers.py build/libcleave.so [--texts 20000] [--only NAME] [more texts.txt ...]

A model that marks each piece's last byte shows where text was cut; a small BPE trained with the pattern shows ids."""
import argparse
import ctypes
import io
import json
import pathlib
import random
import sys
import tempfile
import unicodedata

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, trainers

import tokenizer_patterns

here = pathlib.Path(__file__).parent
assert unicodedata.unidata_version == "14.0.0", "which code points Unicode 14 has, Python 3.11 knows"
# characters whose category or script changed after Unicode 14 are none of these
ASSIGNED = [chr(c) for c in range(0x110000) if unicodedata.category(chr(c)) not in ("Cn", "Cs")]
COMMON = ([chr(c) for c in range(0x20, 0x7f)] * 3 + list("  \n\t\r\u00a0\u3000\u180e\u200b\u0085\u2028'\"sStTdDmMſK09٣½Ⅷ①ǅʰªß"
          "e\u0301\u0345\u20dd日本語ひカー한글אבgéÉİıΣςσ🙂\u200d-_.,!?…。，/") * 4)


class Cleave:
    """A tokenizer.json opened by the library."""

    def __init__(self, library, text):
        self.lib = library
        self.handle, self.error = ctypes.c_void_p(), ctypes.create_string_buffer(8 + 96 + 512)
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            file.write(text)
            file.flush()
            if library.clv_tokenizer_open(ctypes.byref(self.handle), file.name.encode(), self.error):
                raise ValueError(self.error.raw[8 + 96:].split(b"\0")[0].decode())

    def encode(self, text, special=True):
        data = text.encode()
        ids, n = ctypes.POINTER(ctypes.c_int64)(), ctypes.c_int64()
        if self.lib.clv_tokenizer_encode(self.handle, data, ctypes.c_size_t(len(data)), special, ctypes.byref(ids), ctypes.byref(n), self.error):
            raise ValueError(self.error.raw[8 + 96:].split(b"\0")[0].decode())
        found = ids[:n.value]
        self.lib.free(ids)
        return found

    def decode(self, ids):
        text, size = ctypes.POINTER(ctypes.c_char)(), ctypes.c_size_t()
        if self.lib.clv_tokenizer_decode(self.handle, (ctypes.c_int64 * len(ids))(*ids), ctypes.c_int64(len(ids)), ctypes.byref(text),
                                         ctypes.byref(size), self.error):
            raise ValueError(self.error.raw[8 + 96:].split(b"\0")[0].decode())
        found = text[:size.value].decode()
        self.lib.free(text)
        return found

    def close(self):
        self.lib.clv_tokenizer_free(self.handle)


def random_text(draw):
    kind = draw.random()
    pool = ASSIGNED if kind < 0.2 else COMMON
    length = draw.randrange(0, 60)
    if kind > 0.6:
        return "".join(draw.choice(pool) * draw.choice((1, 1, 1, 2, 3, 4)) for _ in range(length // 2))
    return "".join(draw.choice(pool if draw.random() < 0.9 else ASSIGNED) for _ in range(length))


def real_text(draw, texts):
    text = draw.choice(texts)
    begin = draw.randrange(len(text))
    return text[begin:begin + draw.randrange(1, 300)]


def cutting_model():
    """Byte by byte, each piece's last one another token."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {text: i for i, text in enumerate(alphabet + [c + "</w>" for c in alphabet])}
    return Tokenizer(models.BPE(vocab=vocab, merges=[], end_of_word_suffix="</w>"))


def trained_model(pre_tokenizer):
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer
    trainer = trainers.BpeTrainer(vocab_size=2000, show_progress=False, initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator([(here.parent.parent / "data/corpus.txt").read_text()], trainer)
    return tokenizer


def sentencepiece_model(**options):
    """SentencePiece's own training, with its table of normalization."""
    model, text = io.BytesIO(), (here.parent.parent / "data/corpus.txt").read_text()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(line for line in text.split("\n") if line), model_writer=model,
                                             vocab_size=1500, model_type="unigram", minloglevel=2, **options)
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(model.getvalue())
    return proto


def unigrams():
    """In the manner of T5, XLM-R and ALBERT, as transformers converts them."""
    nfkc, nmt, bytes_too = (sentencepiece_model(normalization_rule_name=name, byte_fallback=fallback)
                            for name, fallback in (("nfkc", False), ("nmt_nfkc_cf", False), ("nmt_nfkc", True)))

    def made(proto, normalizer, pre_tokenizer, decoder):
        fallback = any(p.piece == "<0x41>" for p in proto.pieces)
        tokenizer = Tokenizer(models.Unigram([(p.piece, p.score) for p in proto.pieces], unk_id=0, byte_fallback=fallback))
        tokenizer.normalizer, tokenizer.pre_tokenizer, tokenizer.decoder = normalizer, pre_tokenizer, decoder
        return tokenizer

    def table(proto):
        return normalizers.Precompiled(proto.normalizer_spec.precompiled_charsmap)

    metaspace, words = pre_tokenizers.Metaspace(prepend_scheme="always"), pre_tokenizers.WhitespaceSplit()
    return {
        "t5": made(nfkc, normalizers.Sequence([table(nfkc), normalizers.Strip(left=False, right=True),
                                               normalizers.Replace(Regex(" {2,}"), "▁")]), metaspace, decoders.Metaspace()),
        "xlm_r": made(nmt, table(nmt), pre_tokenizers.Sequence([words, metaspace]), decoders.Metaspace()),
        "albert": made(nmt, normalizers.Sequence([
            normalizers.Replace("``", '"'), normalizers.Replace("''", '"'), normalizers.NFKD(), normalizers.StripAccents(),
            normalizers.Lowercase(), table(nmt), normalizers.Replace(Regex(" {2,}"), " ")]), metaspace, decoders.Metaspace()),
        "byte_fallback": made(bytes_too, normalizers.Sequence([normalizers.Nmt(), table(bytes_too)]), pre_tokenizers.Metaspace(
            prepend_scheme="always", split=False), decoders.Sequence([decoders.ByteFallback(), decoders.Fuse(), decoders.Replace("▁", " ")])),
        "no_table": made(nfkc, None, None, None),
    }


def compare(library, name, tokenizer, texts):
    """Prints the first text that differs; true: none does."""
    try:
        ours = Cleave(library, tokenizer.to_str())
    except ValueError as why:
        print(f"{name}: refused: {why}")
        return False
    wrong = 0
    for text in texts:
        want, got = tokenizer.encode(text).ids, ours.encode(text)
        if want == got and tokenizer.decode(want) == ours.decode(got):
            continue
        wrong += 1
        if wrong == 1:
            at = next((i for i, (a, b) in enumerate(zip(want, got)) if a != b), min(len(want), len(got)))
            print(f"{name}: {text!r}: expected {want[max(0, at - 3):at + 5]}, got {got[max(0, at - 3):at + 5]} at {at}")
    ours.close()
    print(f"{name}: {len(texts) - wrong} of {len(texts)} texts equal")
    return wrong == 0


SMALL = [
    r"\s+", r"\S+", r"\w+", r"\W", r"\d+", r"\D", r"\bs", r"\B.", r"\h+", r"\H", r"[\h_]+", r"\v", r"a{,2}", r"s{2}+", r"s{1,2}?", r"s{2}?",
    r"\p{N}{1,3}+", r"s**", r"t+*?", r"[a[b-d]]", r"[a-z&&[^aeiou]]+", r"[^a-z&&[^aeiou]]", r"[\w&&\D]+", r"[^\W\d]+", r"[^\s\W]", r"[\S]",
    r"[[:alpha:]]+", r"[[:alnum:]]+", r"[[:^space:]]+", r"[[:punct:]]", r"[[:upper:]]", r"[[:lower:]]+", r"[[:cntrl:]]", r"[[:blank:]]",
    r"[[:graph:]]+", r"[[:print:]]+", r"[[:xdigit:]]", r"[[:word:]]+", r"[[:digit:]]", r"[[:ascii:]]+", r"^.", r".$", r"\A.", r".\z", r".\Z",
    r"(?m).+", r"(?m:.)+", r".+", r"(?i)s", r"(?i:k)", r"x(?i)s|t", r"(?x) s # comment" + "\n t", r"(?#note)s", r"\p{Han}+", r"\p{Hiragana}",
    r"\p{Katakana}+", r"\p{Latin}+", r"\p{Greek}", r"\p{^L}", r"\P{L}+", r"\p{Lu}", r"\pL+", r"\PN", r"\p{Letter}+", r"\p{Uppercase_Letter}",
    r"\p{alnum}+", r"\p{Alphabetic}+", r"\p{Emoji}", r"\p{Any}", r"\p{Punct}+", r"\p{Punctuation}", r"\p{Space}", r"\p{word}+", r"\P{Word}", r"[^\w]", r"\p{Symbol}", r"\p{Script=Han}", r"\p{In_Hiragana}", r"\R", r"\X", r"\N+", r"\O",
    r"(?<=s)t", r"(?<!s)t", r"(?=s)", r"", r"s*", r"(?:)", r"(s|t)+", r"(?<a>s)\k<a>", r"(s)\1", r"s++t", r"(?>s+)t", r"\x41", r"\x{e9}",
    r"\u00e9", r"\t", r"\e", r"\a", r"\0", r"\012", r"]", r"}", r"{", r"a{", r"{,}", r"[]a]", r"[a-]", r"[-a]", r"[a\-z]", r"[\]]", r"[\b]", r"-",
    r"\/", r"\-", r"[^\n]", r"[.]", r"[$^]", r"é|ß", r"(?i:é)", r"(?i:[a-f]+)", r"[\u4e00-\u9fff]+", r"[\x{4e00}-\x{9fff}]+", r"\K.", r"s\Kt", r"\G.",
    r"\p{L}|\p{M}|\p{N}|\p{P}|\p{S}|\p{Z}|\p{C}", r"\p{Lt}|\p{Lm}|\p{Lo}|\p{Nl}|\p{No}|\p{Pc}|\p{Sc}|\p{Sk}|\p{Zs}|\p{Cf}", r"[一-龥ࠀ-一가-퟿]+",
    r"(?i:ss)", r"(?i:ﬁ)", r"(?-i)s", r"(?mx: s )", r"\y.", r"(?~s)", r"\g<1>", r"(*FAIL)", r"(?P<n>s)", r"[s", r"(s", r"s)", r"*s", r"+", r"s{3,1}",
    r"\p{Nope}", r"\p{L", r"[z-a]", r"\xe9", r"\Qs\E", r"(?<=s+)t", r"(?W)\w", r"(?a)s", r"[[:nope:]]", r"[a-\d]", r"[\d-a]", r"[a-c-e]", r"\cA", r"[&&a]",
]


def compare_small(library, texts):
    good = True
    for pattern in SMALL:
        for behavior, invert in (("isolated", False), ("removed", False), ("merged_with_previous", False), ("merged_with_next", True),
                                 ("contiguous", False)):
            try:
                pre = pre_tokenizers.Split(Regex(pattern), behavior, invert)
            except Exception as why:
                pre = None
                reason = str(why)
            tokenizer = cutting_model()
            spec = json.loads(tokenizer.to_str())
            if pre is None:  # the library refuses it: so must we
                spec["pre_tokenizer"] = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
                try:
                    Cleave(library, json.dumps(spec)).close()
                    print(f"{pattern!r}: taken, the library says {reason}")
                except ValueError as ours:
                    print(f"{pattern!r}: refused by both: {ours}")
                break
            tokenizer.pre_tokenizer = tokenizer_patterns.in_order(pre)
            try:
                ours = Cleave(library, tokenizer.to_str())
            except ValueError as why:
                print(f"{pattern!r}: refused: {why}")
                break
            for text in texts:
                if tokenizer.encode(text).ids != ours.encode(text):
                    print(f"{pattern!r}, {behavior}, {invert}: differs on {text!r}:", [p for p, _ in pre.pre_tokenize_str(text)])
                    good = False
                    break
            ours.close()
    return good


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("library")
    parser.add_argument("more", nargs="*", help="files of text beside data/corpus.txt")
    parser.add_argument("--texts", type=int, default=20000)
    parser.add_argument("--only", help="of this name alone; 'small': the small expressions; 'unigram': those models")
    given = parser.parse_args()
    library = ctypes.CDLL(given.library)
    draw = random.Random(11)
    real = [pathlib.Path(p).read_text() for p in [here.parent.parent / "data/corpus.txt", *given.more]]
    latin = ["".join(map(chr, range(first, 0x250, 3))) for first in range(3)] + ["".join(map(chr, range(0x250)))]
    texts = latin + [random_text(draw) if i % 2 else real_text(draw, real) for i in range(given.texts)]
    good = True
    for name, pre_tokenizer in tokenizer_patterns.MODELS.items():
        if given.only in (None, name):
            cutting = cutting_model()
            cutting.pre_tokenizer = pre_tokenizer
            good = compare(library, name + ", pieces", cutting, texts) and good
            good = compare(library, name + ", ids", trained_model(pre_tokenizer), texts) and good
    for name, tokenizer in (unigrams() if given.only in (None, "unigram") else {}).items():
        good = compare(library, name, tokenizer, texts) and good
    if given.only in (None, "small"):
        good = compare_small(library, texts[:given.texts // 20]) and good
    sys.exit(not good)


main()
