#!/usr/bin/env bash
# LiteGaze from EfficientNet-lite0 to models of four sizes. Reads top to bottom; every step that was interrupted can be
# resumed: start the script again. Networks that are kept in checkpoints/ are taken from there and not made again; to
# make one again, delete its file.
#
#   RANKS=2 experiments/lite.sh
#
# RANKS processes of one thread each share every training step. The data sets lie in ../shared/data, or where
# FASTGAZE_DATA says. PYTHON names the interpreter, .venv's by default.
set -euo pipefail
cd "$(dirname "$0")/.."
export FASTGAZE_DATA=${FASTGAZE_DATA:-$PWD/../shared/data} OMP_NUM_THREADS=1
python=${PYTHON:-.venv/bin/python}
workshop="$python -m fastgaze workshop"
together="$python -m torch.distributed.run --nproc_per_node ${RANKS:-2} --master_port ${PORT:-29511} -m fastgaze workshop"
config=experiments/configs/lite0.toml
runs=runs

kept() {  # kept NAME FILE: whether checkpoints/ has the network; if so, it is at FILE now
  [ -f "checkpoints/$1.safetensors" ] || return 1
  if [ ! -f "$2" ]; then mkdir -p "$(dirname "$2")" && cp "checkpoints/$1.safetensors" "$2"; fi
}

keep() {  # keep FILE NAME: in half precision
  $python -m experiments.keep "$1" "checkpoints/$2.safetensors"
}

finish() {  # finish RUN NAME: export the best network of a run, look at its calibration, score the file
  local out=$runs/$1
  $python -m fastgaze export "$out/best.safetensors" --out "$out/model.onnx" --name "$2"
  $python -m experiments.lite_check "$out/best.safetensors" --config $config --out "$out/check.json"
  for set in salicon/val osie eyecrowd ueyes; do
    held=--held-out; if [ $set = salicon/val ]; then held=; fi
    scores=$out/${set//\//-}.json
    if [ -f "$scores" ]; then continue; fi
    # shellcheck disable=SC2086  # $held is a word or nothing
    $python -m fastgaze evaluate "$out/model.onnx" --data "$FASTGAZE_DATA/$set" --layout npz $held \
      --threads 1 --json > "$scores.part"
    mv "$scores.part" "$scores"
  done
}

# 1. The unpruned network learns from fixations alone: photographs, crowds and screens.
if ! kept litegaze-lite0 $runs/lite0/best.safetensors; then
  $together distill --config $config --out $runs/lite0
  keep $runs/lite0/best.safetensors litegaze-lite0
fi
finish lite0 litegaze-lite0

# 2. Its predictions, the mean of image and mirror image, become half of the targets of the smaller ones.
[ -f $runs/lite0/maps-9995.npy ] || $together soft-targets $runs/lite0 --config $config

# 3. Fisher pruning by the engine's milliseconds while training, with a snapshot at every mark.
for mark in 8.2 3.5 1.7; do
  snapshot=$runs/lite0-pruned/$mark.safetensors
  if kept litegaze-lite0-$mark "$snapshot"; then continue; fi
  $workshop prune --config $config --start $runs/lite0/best.safetensors --out $runs/lite0-pruned
  keep "$snapshot" litegaze-lite0-$mark
done

# 4. Snapshots are fine-tuned. name : snapshot to start from : steps : settings
for student in default:8.2:1500:lite0 small:3.5:2500:lite_small tiny:1.7:4000:lite_small; do
  IFS=: read -r name mark steps settings <<< "$student"
  if ! kept litegaze-$name "$runs/lite/$name/best.safetensors"; then
    $together tune --config "experiments/configs/$settings.toml" --start "$runs/lite0-pruned/$mark.safetensors" \
      --out "$runs/lite/$name" --steps "$steps"
    keep "$runs/lite/$name/best.safetensors" "litegaze-$name"
  fi
  finish "lite/$name" "litegaze-$name"
done
