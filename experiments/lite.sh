#!/usr/bin/env bash
# The bundled models: LiteGaze from EfficientNet-lite in four sizes. Reads top to bottom; every step
# that was interrupted can be resumed: start the script again. Networks that are kept in checkpoints/ are taken from there and
# not made again; to make one again, delete its file.
#
#   RANKS=2 experiments/lite.sh
#
# RANKS processes of one thread each share every training step. The data sets lie in data/, or where FASTGAZE_DATA says.
# PYTHON names the interpreter, .venv's by default.
set -euo pipefail
cd "$(dirname "$0")/.."
export FASTGAZE_DATA=${FASTGAZE_DATA:-$PWD/data} OMP_NUM_THREADS=1
python=${PYTHON:-.venv/bin/python}
workshop="$python -m fastgaze workshop"
together="$python -m torch.distributed.run --nproc_per_node ${RANKS:-2} --master_port ${PORT:-29511} -m fastgaze workshop"
configs=experiments/configs
runs=runs

kept() {  # kept NAME FILE: whether checkpoints/ has the network; if so, it is at FILE now
  [ -f "checkpoints/$1.safetensors" ] || return 1
  if [ ! -f "$2" ]; then mkdir -p "$(dirname "$2")" && cp "checkpoints/$1.safetensors" "$2"; fi
}

keep() {  # keep FILE NAME: in half precision
  $python -m experiments.keep "$1" "checkpoints/$2.safetensors"
}

# 1. The unpruned networks learn from fixations alone: photographs, crowds and screens.
for name in lite0 lite1; do
  if ! kept litegaze-$name $runs/$name/best.safetensors; then
    $together distill --config $configs/$name.toml --out $runs/$name
    keep $runs/$name/best.safetensors litegaze-$name
  fi
done

# 2. lite1 is the better one. Its predictions, the mean of image and mirror image, become a part of the targets of all
#    others, on SALICON and on the eye-tracking sets.
$workshop soft-targets $runs/lite1 --config $configs/lite1.toml
$workshop soft-targets $runs/lite1 --config $configs/lite1.toml --eye-tracking

# 3. Fisher pruning of lite0 by the engine's milliseconds while training, with a snapshot at every mark.
for mark in 8.2 4.2 2.5; do
  snapshot=$runs/lite0-pruned/$mark.safetensors
  if kept litegaze-lite0-$mark "$snapshot"; then continue; fi
  $workshop prune --config $configs/lite0.toml --start $runs/lite0/best.safetensors --out $runs/lite0-pruned
  keep "$snapshot" litegaze-lite0-$mark
done

# 4. The default model before its last stage: the snapshot at 8.2 ms is tuned, pruned a little further for a larger working size, and the
#    largest network that is not slower than fastgaze-m is tuned at that size.
if ! kept litegaze-default-parent $runs/default/best.safetensors; then
  $workshop tune --config $configs/lite0.toml --start $runs/lite0-pruned/8.2.safetensors --out $runs/lite/default
  $workshop prune --config $configs/lite_default.toml --start $runs/lite/default/best.safetensors --out $runs/default-pruned
  start=$($python -m experiments.choose $runs/default-pruned --pixels 64512 --than fastgaze-m --limit 0.97)
  $workshop tune --config $configs/lite_default.toml --start "$start" --out $runs/default
  keep $runs/default/best.safetensors litegaze-default-parent
fi

# 5. The large model: lite1, pruned a little for its size and time, and tuned by what it predicted before.
if ! kept litegaze-large $runs/large/best.safetensors; then
  $workshop prune --config $configs/lite_large.toml --start $runs/lite1/best.safetensors --out $runs/large-pruned
  $workshop tune --config $configs/lite_large.toml --start $runs/large-pruned/22.safetensors --out $runs/large
  keep $runs/large/best.safetensors litegaze-large
fi

# 6. The large model is the better teacher on eye tracking and screens (`experiments.teacher_ladder`): it labels everything,
#    variants of the photographs too, and the three others are tuned by it for long.
if [ ! -f checkpoints/litegaze-tiny.safetensors ]; then
  for what in "" --eye-tracking --variants; do
    $workshop soft-targets $runs/large --config $configs/lite_large.toml $what
  done
fi
finish() {  # finish CONFIG START NAME STEPS SCALE: the checkpoint START, tuned, becomes runs/finish/NAME
  $workshop tune --config "$configs/$1.toml" --start "$2" --out "$runs/finish/$3" --steps "$4" --scale "$5"
}
if ! kept litegaze-default $runs/finish/default/best.safetensors; then
  finish lite_finish $runs/default/best.safetensors default 6000 0.9
  keep $runs/finish/default/best.safetensors litegaze-default
fi

# 7. The finished default network, pruned by the engine's milliseconds at 224x160 and tuned, twice: after the first round it
#    was faster than fastgaze-s on a quiet machine, but not beside other jobs. It was the small model; now tiny starts here.
if ! kept litegaze-small-parent $runs/finish/small-parent/best.safetensors; then
  $workshop prune --config $configs/lite_small.toml --start $runs/finish/default/best.safetensors --out $runs/small-pruned
  finish lite_finish $runs/small-pruned/1.7.safetensors small-1.7 9000 0.7
  $workshop prune --config $configs/lite_small_again.toml --start $runs/finish/small-1.7/best.safetensors \
    --out $runs/small-pruned-again
  finish lite_finish $runs/small-pruned-again/1.6.safetensors small-parent 5000 0.7
  keep $runs/finish/small-parent/best.safetensors litegaze-small-parent
fi

# 8. The small and the tiny model: reduced to widths that fill the engine's blocks of 16 maps, and tuned for long. Pruning
#    by milliseconds in such blocks (`workshop prune` with $configs/lite_narrow.toml) keeps two blocks in the first layer,
#    where the image is large; tuned alike, one block there and wider layers behind it were better, or a larger image.
narrowed() {  # narrowed START NAME WIDTHS READOUT STEPS SCALE
  if kept "litegaze-$2" "$runs/finish/$2/best.safetensors"; then return; fi
  $workshop narrow --config $configs/lite_narrow.toml --start "$1" --widths "$3" --readout "$4" \
    --out "$runs/narrow/$2.safetensors"
  finish lite_narrow "$runs/narrow/$2.safetensors" "$2" "$5" "$6"
  keep "$runs/finish/$2/best.safetensors" "litegaze-$2"
}
narrowed $runs/finish/default/best.safetensors small \
  16,16,24,48,48,40,96,80,80,192,112,96,112,320,192,176,191,256,112,96,96,128,128 28,14,2 10000 0.8
narrowed $runs/finish/small-parent/best.safetensors tiny \
  16,16,24,48,32,40,80,64,80,160,80,64,96,224,112,112,160,192,80,80,80,96,112 27,11,2 20000 0.6

# 9. Calibration on what was kept out, on the loss grid; the cards have that of the files as they ship.
$python -m experiments.lite_check checkpoints/litegaze-{large,default,small,tiny}.safetensors \
  --config $configs/lite0.toml --out $runs/lite_check.json

# 10. Into the package, with the scores of the files as they ship, and the pages about them.
$python -m experiments.ship
$python -m experiments.border

# 11. What else shows or measures the bundled models: times (at least five runs on a quiet machine), the peer, whom the
#    crop prefers, the pictures of the documentation.
for _ in 1 2 3 4 5; do $python -m experiments.speed; done
$python -m experiments.peers
for name in large default small tiny; do
  $python -m fastgaze audit --model $name --pairs 40 --json > results/crop_audit-$name.json
done
$python -m experiments.weaknesses
$python -m experiments.readme
$python -m experiments.report
