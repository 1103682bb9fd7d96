#!/bin/sh
# Installs what bench/compare.py compares with, into a folder that it looks in. usage:
#   bench/install_peers.sh [--to build-peers] NAME[=CHECKOUT]...
#   python             PyTorch (with Gloo), JAX, transformers, gguf: of PyPI, in a virtual environment
#   llama.cpp          llama-bench, built from the sources in llama-cpp-python's package of PyPI, for this CPU
#   openmpi            Open MPI, by apt
#   llm.c=CHECKOUT     train_gpt2, of github.com/karpathy/llm.c, -Ofast, by its own Makefile, for 4 x 64 and 4 x 256
#   llama2.c=CHECKOUT  run, of github.com/karpathy/llama2.c, -Ofast -march=native
#   distributed-llama=CHECKOUT  dllama, of github.com/b4rtaz/distributed-llama, by its own Makefile
# A checkout stays as it is: it is built in a copy.
set -eu
here=$(cd "$(dirname "$0")" && pwd)
to=$here/../build-peers
[ "${1-}" = --to ] && { to=$2; shift 2; }
[ $# -gt 0 ] || { sed -n '2,10s/^# \{0,1\}//p' "$0" >&2; exit 2; }
mkdir -p "$to"
to=$(cd "$to" && pwd)
jobs=$(nproc)

copy() { # CHECKOUT NAME
    rm -rf "${to:?}/$2"
    mkdir "$to/$2"
    (cd "$1" && tar cf - --exclude=.git .) | (cd "$to/$2" && tar xf -)
    git -C "$1" log -1 --format=%h >"$to/$2/version.txt" 2>/dev/null || echo unknown >"$to/$2/version.txt"
}

install_python() {
    python3 -m venv "$to/venv"
    "$to/venv/bin/pip" install -q -r "$here/peers/requirements.txt"
}

install_llama_cpp() {
    rm -rf "$to/llama.cpp"
    mkdir "$to/llama.cpp"
    python3 -m pip download -q --no-deps --no-binary llama-cpp-python -d "$to/llama.cpp" llama-cpp-python
    tar xzf "$to"/llama.cpp/*.tar.gz -C "$to/llama.cpp"
    cmake -S "$to"/llama.cpp/llama_cpp_python-*/vendor/llama.cpp -B "$to/llama.cpp/build" -DCMAKE_BUILD_TYPE=Release \
        -DBUILD_SHARED_LIBS=OFF -DLLAMA_BUILD_TESTS=OFF -DLLAMA_BUILD_EXAMPLES=OFF -DLLAMA_BUILD_SERVER=OFF \
        -DLLAMA_CURL=OFF -DLLAMA_BUILD_UI=OFF >/dev/null
    cmake --build "$to/llama.cpp/build" -j "$jobs" --target llama-bench
    basename "$to"/llama.cpp/llama_cpp_python-*/ | sed 's/_/-/g' >"$to/llama.cpp/version.txt"
}

install_llm_c() {
    copy "$1" llm.c
    for seq in 64 256; do # its sequence, and how much it validates, are constants
        sed -i -e "s/int T = [0-9]*;/int T = $seq;/" -e 's/int val_num_batches = [0-9]*;/int val_num_batches = 1;/' \
            "$to/llm.c/train_gpt2.c"
        make -C "$to/llm.c" CC=gcc train_gpt2 >/dev/null
        mv "$to/llm.c/train_gpt2" "$to/llm.c/train_gpt2_$seq"
    done
}

install_llama2_c() {
    copy "$1" llama2.c
    cc -Ofast -march=native -o "$to/llama2.c/run" "$to/llama2.c/run.c" -lm
}

install_distributed_llama() {
    copy "$1" distributed-llama
    make -C "$to/distributed-llama" -j "$jobs" dllama >/dev/null
}

for what in "$@"; do
    name=${what%%=*}
    case $what in
        python) install_python ;;
        llama.cpp) install_llama_cpp ;;
        openmpi) apt-get install -y -q openmpi-bin libopenmpi-dev ;;
        llm.c=*) install_llm_c "${what#*=}" ;;
        llama2.c=*) install_llama2_c "${what#*=}" ;;
        distributed-llama=*) install_distributed_llama "${what#*=}" ;;
        *) echo "install_peers.sh: '$what'? Valid: python, llama.cpp, openmpi, llm.c=, llama2.c=, distributed-llama=" \
            "with a checkout" >&2; exit 2 ;;
    esac
    echo "$name: installed"
done
