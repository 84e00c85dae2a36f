# The published token files come out byte for byte; a refused text leaves no file; what is asked wrongly is named.
. "${0%/*}/../lib/case.sh"
data=$(shared data) || exit $?
run atoll-convert tokenize --tokenizer "gpt2:$data" --documents blank --held-out 32768 --held-out-to val.bin \
  "$data/tinyshakespeare.txt" train.bin
says "305260 tokens"
cmp train.bin "$data/tiny_shakespeare_train.bin" || fail "train.bin differs"
cmp val.bin "$data/tiny_shakespeare_val.bin" || fail "val.bin differs"
run atoll-convert tokenize --tokenizer "gpt2:$data" --json "$data/tinyshakespeare.txt" one.bin
says '"tokens": 338025'
run atoll-convert show one.bin
says "338025"
# A name a line, in the vocabulary of the tiny Llama; two texts into one file.
run atoll-convert tokenize --tokenizer "llama2c:$data/tok512.bin" --documents line --json "$data/names.txt" \
  "$data/names.txt" names.bin
says '"documents": 64066'
run atoll-convert show "llama2c:$data/tok512.bin"
says "512"
printf 'good\377' >bad.txt
expect 65 atoll-convert tokenize --tokenizer "gpt2:$data" bad.txt bad.bin
says "bad.txt: byte 0xFF at offset 4 is not UTF-8"
expect 66 atoll-convert tokenize --tokenizer "gpt2:$data" absent.txt bad.bin
expect 64 atoll-convert tokenize --tokenizer "gpt2:$data" --held-out 99 --held-out-to h.bin val.bin
says "takes one text or more"
printf 'good' >short.txt
expect 64 atoll-convert tokenize --tokenizer "gpt2:$data" --held-out 99 --held-out-to h.bin short.txt bad.bin
says "the text has 1 tokens"
expect 64 atoll-convert tokenize short.txt bad.bin
says "needs --tokenizer"
expect 64 atoll-convert tokenise short.txt bad.bin
says "did you mean 'tokenize'"
expect 65 atoll-convert tokenize --tokenizer "llama2c:$data/gpt2_vocab.bpe" short.txt bad.bin
[ -z "$(ls -- *bad.bin* h.bin* 2>/dev/null)" ] || fail "files were left: $(ls -- *bad.bin* h.bin*)"
exit 0
