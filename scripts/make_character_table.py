#!/usr/bin/env python3
"""src/tokens/unicode/character_class_table.c: the class of each character in the `tokenizers` library, asked of it:
its parts carry Unicode tables of different years.
usage: make_character_table.py > src/tokens/unicode/character_class_table.c (versions: tests/golden/requirements.txt)"""
import unicodedata

from tokenizers import Regex, normalizers, pre_tokenizers

CHARACTERS = [c for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def split_off(pre_tokenizer):
    """Characters that are cut off from a 'a' before them."""
    return {c for c in CHARACTERS if len(pre_tokenizer.pre_tokenize_str("a" + chr(c))) == 2}


def matched(expression):
    split = pre_tokenizers.Split(Regex(expression), "isolated")
    return {c for c in CHARACTERS if len(split.pre_tokenize_str("~" + chr(c))) == 2}


def removed(normalizer):
    return {c for c in CHARACTERS if normalizer.normalize_str(chr(c)) == ""}


def bert(**options):
    none = dict(clean_text=False, handle_chinese_chars=False, strip_accents=False, lowercase=False)
    return normalizers.BertNormalizer(**{**none, **options})


def words():
    split = pre_tokenizers.Whitespace()
    return {c for c in CHARACTERS if split.pre_tokenize_str("a" + chr(c))[0][0] == "a" + chr(c)}


def unknown_to_normalizers():
    """Characters younger than the library's normalization tables: each is a starter without a decomposition to it."""
    nfd, nfkd, nfc = normalizers.NFD(), normalizers.NFKD(), normalizers.NFC()
    found = set()
    for c in CHARACTERS:
        text, order = chr(c), unicodedata.combining(chr(c))
        same = unicodedata.normalize("NFD", text) == text
        known = unicodedata.category(text) != "Cn" and nfkd.normalize_str(text) == unicodedata.normalize("NFKD", text)
        if order > 1 and same:
            known = known and nfd.normalize_str("a" + text + "\u0334") == "a\u0334" + text
        elif order == 1 and same:
            known = known and nfd.normalize_str("a\u0345" + text) == "a" + text + "\u0345"
        if not known:
            found.add(c)
        if not same and nfc.normalize_str(unicodedata.normalize("NFD", text)) != unicodedata.normalize("NFC", text):
            found |= {ord(part) for part in unicodedata.normalize("NFD", text)[1:]}
    return found


def lower_runs():
    """What utf8proc 2.8 (Unicode 15) does not know of Lowercase, as [first, last, first of the lower ones]; U+0130
    becomes two."""
    lowercase, runs = normalizers.Lowercase(), []
    for c in CHARACTERS:
        lower = lowercase.normalize_str(chr(c))
        if lower == chr(c) or len(lower) > 1 or unicodedata.category(chr(c)) != "Cn" and lower == chr(c).lower():
            continue
        if runs and runs[-1][1] == c - 1 and ord(lower) - c == runs[-1][2] - runs[-1][0]:
            runs[-1][1] = c
        else:
            runs.append([c, c, ord(lower)])
    return runs


def main():
    classes = [
        removed(normalizers.Strip()), removed(bert(clean_text=True)),
        split_off(pre_tokenizers.Punctuation()), split_off(pre_tokenizers.Digits()), removed(bert(strip_accents=True)),
        removed(normalizers.StripAccents()), words(), matched(r"\p{L}"), matched(r"\p{N}"), unknown_to_normalizers(),
    ]
    def bits_of(c):
        return sum(1 << i for i, members in enumerate(classes) if c in members)

    runs, last = [], -1
    for c in range(0x110000):
        bits = bits_of(c)
        if bits != last:
            runs.append(c | bits << 21)
            last = bits
    print("/* character_class_table.c - made by scripts/make_character_table.py; see character_classes.h. */")
    print('#include "tokens/unicode/character_classes.h"\n\n/* clang-format off */')
    print("const uint16_t clv_ascii_classes[128] = {")
    for i in range(0, 128, 16):
        print("    " + " ".join(f"0x{bits_of(c):x}," for c in range(i, i + 16)))
    print("};\n")
    print(f"const size_t clv_n_character_class_runs = {len(runs)};\nconst uint32_t clv_character_class_runs[] = {{")
    for i in range(0, len(runs), 10):
        print("    " + " ".join(f"0x{run:x}," for run in runs[i:i + 10]))
    lower = lower_runs()
    print(f"}};\n\nconst size_t clv_n_lower_runs = {len(lower)};\nconst uint32_t clv_lower_runs[][3] = {{")
    for run in lower:
        print("    {" + ", ".join(f"0x{c:x}" for c in run) + "},")
    print("};\n/* clang-format on */")


main()
