#!/usr/bin/env bash
# LiteGaze from EfficientNet-lite0 to models of four sizes. Reads top to bottom; every step that was interrupted can be
# resumed: start the script again.
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

finish() {  # finish NAME: keep the checkpoint, export it, look at its calibration, score the file
  local out=$runs/$1
  $python -m experiments.keep "$out/best.safetensors" "checkpoints/litegaze-${1#lite/}.safetensors"
  $python -m fastgaze export "$out/best.safetensors" --out "$out/model.onnx" --name "litegaze-${1#lite/}"
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
$together distill --config $config --out $runs/lite0
finish lite0

# 2. Its predictions, the mean of image and mirror image, become half of the targets of the smaller ones.
[ -f $runs/lite0/maps-9995.npy ] || $together soft-targets $runs/lite0 --config $config

# 3. Fisher pruning by the engine's milliseconds while training, with a snapshot at every mark.
$workshop prune --config $config --start $runs/lite0/best.safetensors --out $runs/lite0-pruned

# 4. Snapshots are fine-tuned. name : snapshot to start from : steps : settings
for student in default:8.2:1500:lite0 small:3.5:2500:lite_small tiny:1.7:4000:lite_small; do
  IFS=: read -r name mark steps settings <<< "$student"
  $together tune --config "experiments/configs/$settings.toml" --start "$runs/lite0-pruned/$mark.safetensors" \
    --out "$runs/lite/$name" --steps "$steps"
  finish "lite/$name"
done
