#!/usr/bin/env python3
"""tests/golden/tokenizer: small tokenizers trained on data/corpus.txt - BPE in the manner of Llama 2 (byte fallback), GPT-2, RoBERTa,
Llama 3, Qwen2 and others (byte-level, tokenizer_patterns.py), the first BPE, BERT's WordPiece, Unigram as T5 has it, words - and
the vocab.txt of BERT and ESM-2; and what the `tokenizers` library (transformers for vocab.txt) makes of some hundred texts.
usage: make_tokenizer.py (versions: requirements.txt)"""
import io
import json
import pathlib
import random
import tempfile

import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers
from transformers import BertTokenizer, EsmTokenizer

import tokenizer_patterns
from tokenizer_patterns import LLAMA3, QWEN2

here = pathlib.Path(__file__).parent
corpus = (here.parent.parent / "data/corpus.txt").read_text()[:60000]
BYTES = [f"<0x{b:02X}>" for b in range(256)]


def train(pre_tokenizer, normalizer, decoder, template):
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, fuse_unk=True, unk_token="<unk>"))
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer or pre_tokenizers.Metaspace(prepend_scheme="never")
    special = [AddedToken(text, special=True, normalized=False) for text in ("<unk>", "<s>", "</s>")]
    trainer = trainers.BpeTrainer(vocab_size=420, special_tokens=special + [AddedToken(b, normalized=False) for b in BYTES],
                                  show_progress=False)
    tokenizer.train_from_iterator([corpus], trainer)
    spec = json.loads(tokenizer.to_str())
    spec["added_tokens"] = spec["added_tokens"][:3]  # bytes are pieces of the model, not added tokens
    if not pre_tokenizer:
        spec["pre_tokenizer"] = None
    tokenizer = Tokenizer.from_str(json.dumps(spec))
    tokenizer.decoder = decoder
    if template:
        tokenizer.post_processor = processors.TemplateProcessing(
            single=template, special_tokens=[("<s>", 1), ("</s>", 2)])
    return tokenizer


def train_byte_level(pre_tokenizer, post_processor):
    """In the manner of GPT-2 and Llama 3."""
    tokenizer = Tokenizer(models.BPE(ignore_merges=post_processor is not None))
    tokenizer.pre_tokenizer = pre_tokenizer
    trainer = trainers.BpeTrainer(vocab_size=420, special_tokens=["<s>", "</s>"], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator([corpus], trainer)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = post_processor or processors.ByteLevel(trim_offsets=True)
    return tokenizer


def special(*names, **options):
    return [AddedToken(name, special=True, normalized=False, **options) for name in names]


def train_qwen2():
    pattern = pre_tokenizers.Split(Regex(QWEN2), "isolated")
    tokenizer = train_byte_level(pre_tokenizers.Sequence([pattern, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]), None)
    tokenizer.normalizer = normalizers.NFC()
    return tokenizer


def train_roberta():
    """Added tokens of every kind too."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    trainer = trainers.BpeTrainer(vocab_size=420, special_tokens=["<s>", "<pad>", "</s>", "<unk>"], show_progress=False,
                                  initial_alphabet=pre_tokenizers.ByteLevel.alphabet())
    tokenizer.train_from_iterator([corpus], trainer)
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True, normalized=False)])
    tokenizer.add_tokens([AddedToken("mesh", single_word=True), AddedToken("axis", rstrip=True), "日本"])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 2), ("<s>", 0))
    return tokenizer


BERT_SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]


def train_bert(cased):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=30))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=not cased)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=420, special_tokens=special(*BERT_SPECIAL), show_progress=False)
    tokenizer.train_from_iterator([corpus, "é e ＡＢ 日 本 語 ٣ ' ! ?"], trainer)
    tokenizer.decoder = decoders.WordPiece(cleanup=not cased)
    if cased:
        tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    else:
        tokenizer.post_processor = processors.TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    return tokenizer


def train_words(normalizer, pre_tokenizer, decoder=None):
    tokenizer = Tokenizer(models.WordLevel(unk_token="<unk>"))
    tokenizer.normalizer = normalizer
    tokenizer.pre_tokenizer = pre_tokenizer
    trainer = trainers.WordLevelTrainer(vocab_size=420, special_tokens=special("<unk>", "<s>"), show_progress=False)
    tokenizer.train_from_iterator([corpus, "é ｅ́ 日本語 ' ! ? 1 2 3 4 5 12345 fi ﬁ"], trainer)
    tokenizer.decoder = decoder
    tokenizer.add_tokens(["Tensor", AddedToken("LAYOUT", normalized=True), AddedToken("ÉTÉ", special=True, normalized=True)])
    return tokenizer


RULES = {"ﬁ": "fi", "①": "1", "\u3000": " ", "\t": " ", "\r": " ", "\n": " ", "e\u0301": "é", "\u200d": "", "ｅ": "e", "ｅ́": "é",
         "Ａ": "a", "İ": "i̇", "½": "1/2", "\u0301\u0301": "\u0301", "ſ": "s", "日本": "Japan"}


def train_unigram(byte_fallback):
    """SentencePiece's training, with a table of RULES."""
    model = io.BytesIO()
    with tempfile.NamedTemporaryFile("w", suffix=".tsv") as rules:
        for old, new in RULES.items():
            rules.write("\t".join(" ".join(f"{ord(c):X}" for c in text) for text in (old, new)) + "\n")
        rules.flush()
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=iter(line for line in corpus.split("\n") if line), model_writer=model, vocab_size=600 if byte_fallback else 400,
            model_type="unigram", normalization_rule_tsv=rules.name, byte_fallback=byte_fallback, minloglevel=2)
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(model.getvalue())
    tokenizer = Tokenizer(models.Unigram([(p.piece, p.score) for p in proto.pieces], unk_id=0, byte_fallback=byte_fallback))
    table = normalizers.Precompiled(proto.normalizer_spec.precompiled_charsmap)
    tokenizer.add_special_tokens(special("<unk>", "<s>", "</s>"))
    if byte_fallback:
        tokenizer.normalizer = normalizers.Sequence([normalizers.Nmt(), table])
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="never", split=False)
        tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse(), decoders.Replace(Regex("[▁_]"), " ")])
    else:
        tokenizer.normalizer = normalizers.Sequence([table, normalizers.Strip(left=False, right=True), normalizers.Replace(Regex(" {2,}"), "▁")])
        tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="always")])
        tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
        tokenizer.post_processor = processors.TemplateProcessing(single="$A </s>", special_tokens=[("</s>", 2)])
    return tokenizer


def train_first_bpe():
    """The first BPE: a mark at the end of words; here also at the beginning of what goes on."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", continuing_subword_prefix="##", end_of_word_suffix="</w>", fuse_unk=True))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.CharDelimiterSplit("e"), pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Split("::", "merged_with_next"),
        pre_tokenizers.FixedLength(7)])
    trainer = trainers.BpeTrainer(vocab_size=420, special_tokens=special("<unk>"), show_progress=False, continuing_subword_prefix="##",
                                  end_of_word_suffix="</w>")
    tokenizer.train_from_iterator([corpus], trainer)
    tokenizer.decoder = decoders.BPEDecoder(suffix="</w>")
    return tokenizer


def train_letters():
    """Sound to letters; Split as few use it; and added tokens that are white space, which others before them take."""
    tokenizer = Tokenizer(models.WordLevel(unk_token="<unk>", vocab={c: i for i, c in enumerate(["<unk>", "<pad>", "|"] + list(
        "abcdefghijklmnopqrstuvwxyz.'"))}))
    tokenizer.normalizer = normalizers.Replace(Regex(r"\s+"), "|")
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([
        pre_tokenizers.Split(Regex(r"[^\W\d_]{2}+|<pad>"), "contiguous"), pre_tokenizers.Split(Regex(r"(?i)S|\b"), "removed"), pre_tokenizers.Split("", "isolated")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("a", ""), decoders.CTC(), decoders.WordPiece(cleanup=False)])  # empty tokens show
    tokenizer.add_tokens([AddedToken("\n", lstrip=True, rstrip=True, normalized=False), AddedToken("\t ", rstrip=True, normalized=False),
                          AddedToken("axis", rstrip=True, normalized=False)])
    return tokenizer


def make_ties():
    """Ways of equal sums ("a aa", "aa a"): how the library rounds the scores that it reads from a file says which it takes."""
    random.seed(55)
    vocab = [("<unk>", 0.0)] + [(text, -random.uniform(2, 3) * scale) for letter in "abcdefghijklmnop" for text, scale in ((letter, 4), (2 * letter, 4.1))]
    return Tokenizer(models.Unigram(vocab, unk_id=0))


ESM_TOKENS = (["<cls>", "<pad>", "<eos>", "<unk>"] + list("LAGVSERTIDPKQNFYMHWCXBUZO") + [".", "-", "<null_1>", "<mask>"])


def vocab_cases(out, tokens, config, cls, rows):
    """A folder with vocab.txt, and what transformers makes of texts."""
    out.mkdir(exist_ok=True)
    (out / "vocab.txt").write_text("\n".join(tokens) + "\n")
    for name, content in config.items():
        (out / name).write_text(json.dumps(content) + "\n")
    tokenizer = cls.from_pretrained(out)
    cases = []
    for text in rows:
        ids = tokenizer(text)["input_ids"]
        cases.append({"text": text, "ids": ids, "decoded": tokenizer.decode(ids, skip_special_tokens=True)})
    write_cases(out, cases)


def write_cases(out, rows):
    (out / "cases.json").write_text(json.dumps(rows, ensure_ascii=True, indent=0))


def sequences():
    """Proteins, as ESM-2 reads them."""
    random.seed(6)
    alphabet = ESM_TOKENS + list("  \n\tabx") + ["\x1c", "\u3000", "é", "<cls", "mask>", "<null_"]
    return ["", " ", "MKTVRQERLKSIVRILERSKEPVSGAQ", "M K T", "mkt"] + [
        "".join(random.choice(alphabet) for _ in range(random.randrange(1, 30))) for _ in range(90)]


random.seed(9)
RUNS = ["".join(3 * random.choice("abcdefghijklmnop") for _ in range(random.randrange(1, 60))) for _ in range(100)]
SPACES = ["\n\n", " \n \n ", "axis \n\t \t  ", "\t \t \n", "\n \t "]
MORE_WORDS = ["<mask>", " <mask>", "axis  ", "a mesh b", "[MASK]", "[SEP]", "Ünï", "ﬁne", "İ", "don't", "do not", "日本", "x,y.z!", "LAYOUT",
              "été", "a\u0323\u0302", "\ufffd", "ſ", "'S", "a\u0898\u0334", "\ua7cb", "\U00011935\U00011930", "\u212b\u0323"]


def texts(more=()):
    random.seed(5)
    words = ["the", "layout", "tensor", "of a", "  ", "\n", "\t", "▁", "<s>", "</s>", "<unk>", "<0x41>", "é", "日本語", "🙂", "x" * 40,
             "mesh,", "axis.", "e\u0301", "\u200d", "<", "s>", "it's", "WE'LL", "12345", "\r\n", "\u00a0", "\u3000", "٣٤", "ǅ"]
    words += more
    fixed = ["", " ", "a", " a", "a ", "  a  b ", "▁a", "<s>a", "a<s>", "<s><s>", "<s> a</s> b", "\U0001f469\u200d\U0001f52c", "\x00", "ÿ"]
    made = [random.choice(["", " "]).join(random.choice(words) for _ in range(random.randrange(1, 14))) for _ in range(90)]
    return fixed + made


def main():
    llama = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    cases = {
        "metaspace": train(pre_tokenizers.Metaspace(prepend_scheme="first", split=True), None,
                           decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace(prepend_scheme="first")]), "<s> $A"),
        "normalizer": train(None, normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]), llama,
                            "<s> $A </s>"),
        "gpt2": train_byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False), None),
        "gpt2_prefix": train_byte_level(pre_tokenizers.ByteLevel(add_prefix_space=True), None),
        "llama3": train_byte_level(
            pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(LLAMA3), "isolated"),
                                     pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]),
            processors.Sequence([processors.ByteLevel(trim_offsets=False),
                                 processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 0)])])),
        "always": train(pre_tokenizers.Metaspace(prepend_scheme="always", split=False), None, llama, None),
    }
    newer = {
        "qwen2": train_qwen2(),
        "roberta": train_roberta(),
        "bert": train_bert(cased=False),
        "bert_cased": train_bert(cased=True),
        "words": train_words(normalizers.Sequence([normalizers.NFKC(), normalizers.Strip(), normalizers.Lowercase()]),
                             pre_tokenizers.Sequence([pre_tokenizers.Whitespace(), pre_tokenizers.Digits(individual_digits=True)])),
        "words_split": train_words(normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents()]),
                                   pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Punctuation("merged_with_next"),
                                                            pre_tokenizers.Digits(individual_digits=False)]),
                                   decoders.Sequence([decoders.Replace("e", "E"), decoders.Strip("t", 1, 1)])),
    }
    for name in ("tekken", "cl100k", "deepseek3", "deepseek_coder", "falcon"):
        newer[name] = train_byte_level(tokenizer_patterns.MODELS[name], None)
    newer |= {"t5": train_unigram(False), "unigram_bytes": train_unigram(True), "first_bpe": train_first_bpe(), "letters": train_letters(), "ties": make_ties()}
    out, trained = here / "tokenizer", {}
    out.mkdir(exist_ok=True)
    for name, tokenizer in (cases | newer).items():
        (out / name).mkdir(exist_ok=True)
        file = out / name / "tokenizer.json"
        if not (isinstance(tokenizer.model, (models.WordPiece, models.Unigram)) and file.exists()):  # each training gives another: keep the first
            file.write_text(json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False, indent=0))
        tokenizer = Tokenizer.from_file(str(file))  # scores are not what was written
        trained[name] = tokenizer
        rows = []
        for text in RUNS if name == "ties" else texts(MORE_WORDS if name in newer else ()) + (SPACES if name == "letters" else []):
            ids = tokenizer.encode(text).ids
            rows.append({"text": text, "ids": ids, "decoded": tokenizer.decode(ids)})
        write_cases(out / name, rows)
    bert_tokens = [token for token, _ in sorted(trained["bert"].get_vocab().items(), key=lambda item: item[1])]
    vocab_cases(out / "bert_vocab", bert_tokens, {"config.json": {"model_type": "bert"}}, BertTokenizer, texts(MORE_WORDS))
    vocab_cases(out / "bert_vocab_cased", bert_tokens, {"tokenizer_config.json": {
        "tokenizer_class": "BertTokenizer", "do_lower_case": False, "tokenize_chinese_chars": False,
        "clean_up_tokenization_spaces": True}}, BertTokenizer, texts(MORE_WORDS))
    vocab_cases(out / "esm_vocab", ESM_TOKENS, {"config.json": {"model_type": "esm"}}, EsmTokenizer, sequences())
    vocab_cases(out / "esm_vocab_clean", ESM_TOKENS, {"tokenizer_config.json": {
        "tokenizer_class": "EsmTokenizer", "clean_up_tokenization_spaces": True}}, EsmTokenizer, sequences())


main()
