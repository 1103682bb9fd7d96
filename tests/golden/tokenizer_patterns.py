"""The pre-tokenizers of published models that cut text by regular expressions, for make_tokenizer.py and
compare_tokenizers.py: MODELS, by name."""
from tokenizers import Regex, pre_tokenizers

LLAMA3 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
QWEN2 = LLAMA3.replace("{1,3}", "")
# tiktoken's, converted: {1,3}+ is a repeat of {1,3} to Oniguruma
CL100K = (r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s")
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
ENDINGS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
WORDS = r"[^\r\n\p{L}\p{N}]?" + UPPER + "*" + LOWER + "+END|" + r"[^\r\n\p{L}\p{N}]?" + UPPER + "+" + LOWER + "*END|"
REST = r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
O200K = WORDS.replace("END", ENDINGS) + r"\p{N}{1,3}" + REST
TEKKEN = WORDS.replace("END", "") + r"\p{N}" + REST
QWEN35 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+")
HAN = r"[一-龥ࠀ-一가-퟿]+"
LETTERS = (
    "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-\u0293\u0295-\u02af\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-"
    "\u03a1\u03a3-\u03f5\u03f7-ҁҊ-ԯ\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-"
    "\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d"
    "\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-"
    "\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139"
    "\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-"
    "\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a"
    "\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-"
    "\U000118df\U0001e900-\U0001e943")
PUNCTUATION = r"\s?[!-/:-~！-／：-～‘-‟　-。]+"
DEEPSEEK3_WORDS = (r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^""" + "\r\n" + r"""\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+["""
                   + "\r\n" + r"]*|\s*[" + "\r\n" + r"]+|\s+(?!\S)|\s+")


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Split(Regex(pattern), behavior, invert)


def in_order(*steps):
    return pre_tokenizers.Sequence([*steps, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


MODELS = {
    "llama3": in_order(split(LLAMA3)),
    "qwen2": in_order(split(QWEN2)),
    "qwen35": in_order(split(QWEN35)),
    "cl100k": in_order(split(CL100K)),
    "o200k": in_order(split(O200K)),
    "tekken": in_order(split(TEKKEN)),
    "cl100k_removed": in_order(split(CL100K, "removed", True)),
    "falcon": pre_tokenizers.Sequence([
        pre_tokenizers.Punctuation("contiguous"), pre_tokenizers.ByteLevel(add_prefix_space=False),
        pre_tokenizers.Digits(individual_digits=False), split("[0-9][0-9][0-9]")]),
    "deepseek_llm": in_order(split("[\r\n]"), split(r"\s?[" + LETTERS + "]+"), split(PUNCTUATION), split(r"\s+$"), split(HAN),
                             pre_tokenizers.Digits(individual_digits=True)),
    "deepseek_coder": in_order(split("[\r\n]"), split(r"\s?\p{L}+"), split(r"\s?\p{P}+"), split(HAN),
                               pre_tokenizers.Digits(individual_digits=True)),
    "deepseek3": in_order(split(r"\p{N}{1,3}"), split("[一-龥぀-ゟ゠-ヿ]+"), split(DEEPSEEK3_WORDS)),
    "bloom": in_order(split(r" ?[^(\s|[.,!?…。，、।۔،])]+")),
    "gemma_newlines": in_order(split("\n\n", "merged_with_previous")),
}
