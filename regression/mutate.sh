# Kernels, layers, pipelined products and recurrent programs broken on purpose, one line at a time: each time the test
# named beside it must fail. For nights: cmake -DATOLL_SOAK=ON, ctest -L soak.
#
# Works in a copy of the tree with a build folder of its own, which is left for who wants to look. A line that is no
# longer there, or there more than once, fails: whoever changes such a line finds another way to break it.
. "$ATOLL_SOURCE_DIR/regression/lib/case.sh"

# FILE @ FROM @ TO @ TEST, lines of one file together, so that few are compiled again.
cat >mutations <<'T'
modules/kernel/backends/cpu/vec.inc @ float variance = fold((s[0] + s[1]) + (s[2] + s[3])) / (float)C; @ float variance = fold((s[0] + s[1]) + (s[2] + s[3])) / (float)(C - 1); @ kernel_cpu_matches_ref
modules/kernel/backends/cpu/vec.inc @ near = bits + 0x7fff + (bits >> 16 & 1), @ near = bits + 0x8000, @ kernel_avx2_bf16_matches_ref
modules/kernel/backends/cpu/vec.inc @ root = (float)(1 / sqrt((double)p->bias2)) @ root = (float)(1 / (double)p->bias2) @ kernel_cpu_matches_ref
modules/kernel/backends/cpu/vec_attention.inc @ return a->both_ways || query - k0 + 1 >= live ? live : query - k0 + 1; @ return a->both_ways || query - k0 + 2 >= live ? live : query - k0 + 2; @ kernel_cpu_matches_ref
modules/kernel/backends/cpu/vec_attention.inc @ p[j] = bits[j] < a->threshold ? 0 : p[j] * a->keep_scale; @ p[j] = bits[j] < a->threshold ? 0 : p[j]; @ kernel_cpu_matches_ref
modules/kernel/backends/cpu/vec_keep.inc @ *scale = most / 127; @ *scale = most / 128; @ kernel_plain_keep_matches_formulas
modules/kernel/backends/cpu/vec_decode.inc @ score[g * n + t] = fold(s) * scale; @ score[g * n + t] = fold(s); @ kernel_decoding_matches_ref
modules/layer/src/ops.c @ const atoll_rope rope = {c->rope_theta, c->rope_factor, @ const atoll_rope rope = {c->rope_theta, 0, @ layer_decoding_keeps_its_promises
modules/layer/src/ops.c @ return KERNELS->decode->rope(QUEUE, at, &rope, @ return KERNELS->decode->rope(QUEUE, at, &(atoll_rope){.theta = c->rope_theta}, @ layer_decoding_keeps_its_promises
modules/layer/src/programs.c @ int ln2 = put_norm(p, r1, LN2_W, LN2_B); @ int ln2 = put_norm(p, x, LN2_W, LN2_B); @ layer_gradients_match_recorded_float64
modules/layer/src/programs.c @ KEEP(X) | KEEP(QKV) | KEEP(O) | KEEP(F), 0, 0} @ KEEP(X) | KEEP(QKV) | KEEP(O) | KEEP(STREAM) | KEEP(F), 0, 0} @ layer_bytes_are_exact
modules/ctapipe/src/tile.c @ ATOLL_TRY(cta_wait_tile(v, step - 1, p, k / made)); @ ATOLL_TRY(cta_wait_tile(v, step - 1, p, 0)); @ chain_race_release
modules/ctapipe/src/tile.c @ db[c] += right[r * CTA_TILE + c]; @ db[c] = right[r * CTA_TILE + c]; @ chain_gradients_agree_2
modules/recurrent/src/gradients.c @ return k ? atoll_rt_neg(atoll_rt_div(atoll_rt_mul(g, self), b)) : @ return k ? atoll_rt_div(atoll_rt_mul(g, self), b) : @ recurrent_gradients_agree_with_differences
modules/recurrent/src/storage.c @ s->slots = w->along[i * RT_DIMS + s->dim].widest; @ s->slots = w->along[i * RT_DIMS + s->dim].widest + 1; @ recurrent_memory_follows_from_indices
modules/recurrent/src/tile.c @ atoll_rt_add(atoll_rt_mul(before(b, l), c), part) @ atoll_rt_add(before(b, l), part) @ recurrent_decoding_agrees_with_the_interpreter
modules/recurrent/src/groups.c @ rt_head(y) == head && rt_is_identity(a->g, &y->in[k])) @ rt_head(y) == head) @ recurrent_statements_fuse
modules/recurrent/src/runtime.c @ keys[to] = rt->keys[node][i]; @ (void)rt->keys[node][i]; @ recurrent_programs_compile
modules/recurrent/src/schedule.c @ if (x->op == RT_SINK && x->dims) @ if (x->op == RT_SINK && x->dims && 0) @ recurrent_programs_compile
modules/recurrent/src/emit_view.c @ if (a->src != b->src || a->cond != b->cond) @ if (a->src != b->src) @ recurrent_shifted_reads_have_pads
modules/recurrent/src/poly.c @ isl_pw_aff_coalesce(isl_pw_aff_neg(isl_pw_aff_neg(isl_pw_aff_copy(value)))); @ isl_pw_aff_coalesce(isl_pw_aff_copy(value)); @ recurrent_orders_are_checked
T
# ATOLL_MUTATE=TEXT in the environment: only lines with TEXT, while one looks for a test that notices.
[ -z "${ATOLL_MUTATE:-}" ] || { grep -F -- "$ATOLL_MUTATE" mutations >some && mv some mutations; } || fail "no line has $ATOLL_MUTATE"
tests=$(sed 's/.* @ //' mutations | sort -u)

# The same compiler as the build that this belongs to; plain, so that a test that fails is one that looked.
cached() { sed -n "s/^$1:[A-Z]*=//p" "$ATOLL_BUILD_DIR/CMakeCache.txt"; }
mkdir tree
tar -C "$ATOLL_SOURCE_DIR" --exclude=./.git --exclude=./build --exclude="./${ATOLL_BUILD_DIR#"$ATOLL_SOURCE_DIR"/}" -cf - . |
  tar -C tree -xf - || fail 'the tree is not copied'
options=(-DCMAKE_BUILD_TYPE=Release -DATOLL_CUDA=OFF -DATOLL_NCCL=OFF -DATOLL_WERROR=OFF) # a broken line may leave something unused
for v in CMAKE_C_COMPILER CMAKE_CXX_COMPILER CMAKE_C_COMPILER_LAUNCHER CMAKE_CXX_COMPILER_LAUNCHER CMAKE_PREFIX_PATH; do
  [ -z "$(cached $v)" ] || options+=("-D$v=$(cached $v)")
done
run cmake -S tree -B tree/build -G "$(cached CMAKE_GENERATOR)" "${options[@]}"

# Programs of several tests have the name of the first; CTest knows which.
program() {
  ctest --test-dir tree/build -N -V -R "^$1\$" | grep -o "tree/build/tests/test_[a-z0-9_]*" | head -n 1 | sed 's|.*/||'
}
declare -A programs
for t in $tests; do
  programs[$t]=$(program $t)
  [ -n "${programs[$t]}" ] || fail "there is no test $t"
done
build() { cmake --build tree/build --parallel "${ATOLL_MUTATE_JOBS:-2}" --target "$@"; }
holds() { ctest --test-dir tree/build --no-tests=error --output-on-failure -R "^($1)\$"; }
run build $(printf '%s\n' "${programs[@]}" | sort -u)
run holds "$(echo $tests | tr ' ' '|')"

survived=0
while IFS= read -r line; do
  file=${line%% @ *}
  test=${line##* @ }
  cp "tree/$file" whole
  LINE=$line python3 - <<'P' || fail "no longer applies: $line"
import os
file, old, new, _ = os.environ["LINE"].split(" @ ")
text = open("tree/" + file).read()
if text.count(old) != 1:
    raise SystemExit("%s has %d times: %s" % (file, text.count(old), old))
open("tree/" + file, "w").write(text.replace(old, new))
P
  run build "${programs[$test]}"
  if holds $test >"$ATOLL_LAST_OUT" 2>&1 </dev/null; then
    echo "SURVIVED $test: $line"
    survived=$((survived + 1))
  else
    echo "noticed by $test: $line"
  fi
  cp whole "tree/$file" # with the time of now, so that it is built again
done <mutations
[ $survived = 0 ] || fail "$survived of $(wc -l <mutations) went unnoticed"
