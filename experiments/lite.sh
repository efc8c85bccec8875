#!/usr/bin/env bash
# LiteGaze from EfficientNet-lite0 to the files that ship. Reads top to bottom; every step continues where it was.
#
#   RANKS=2 experiments/lite.sh
#
# RANKS processes of one thread each share every training step.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
config=experiments/configs/lite0.toml
runs=runs
data=../shared/data
export OMP_NUM_THREADS=1
fastgaze=("$python" -m fastgaze)
together=("$python" -m torch.distributed.run --nproc_per_node "${RANKS:-2}" --master_port "${PORT:-29511}" -m fastgaze)

# 1. The whole network on fixations: photographs, crowds and screens.
"${together[@]}" workshop distill --config $config --out $runs/lite0
$python -m experiments.keep $runs/lite0/best.safetensors checkpoints/litegaze-lite0.safetensors

# 2. Its soft targets, the mean over each image and its mirror image, are half of what the smaller ones learn from.
[ -f $runs/lite0/maps-9995.npy ] || "${together[@]}" workshop soft-targets $runs/lite0 --config $config

# 3. Fisher pruning by the engine's milliseconds, with a snapshot at every mark.
"${fastgaze[@]}" workshop prune --config $config --start $runs/lite0/best.safetensors --out $runs/lite0-pruned

# 4. Fine-tuning, export, scores. name : snapshot : steps
for student in default:8.2:1500 small:3.5:2500 tiny:1.7:4000; do
  IFS=: read -r name mark steps <<< "$student"
  out=$runs/lite/$name
  "${together[@]}" workshop tune --config $config --start $runs/lite0-pruned/$mark.safetensors --out $out --steps "$steps"
  $python -m experiments.keep $out/best.safetensors checkpoints/litegaze-$name.safetensors
  "${fastgaze[@]}" export $out/best.safetensors --out $out/model.onnx --name "litegaze-$name"
  $python -m experiments.lite_check $out/best.safetensors --config $config --json $out/check.json
  for set in salicon/val osie eyecrowd ueyes; do
    held=(--held-out); [ $set = salicon/val ] && held=()
    scores=$out/${set//\//-}.json
    [ -f "$scores" ] || "${fastgaze[@]}" evaluate $out/model.onnx --data $data/$set --layout npz "${held[@]}" \
      --threads 1 --json > "$scores.part"
    [ -f "$scores" ] || mv "$scores.part" "$scores"
  done
done
