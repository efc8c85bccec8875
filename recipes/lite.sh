#!/usr/bin/env bash
# LiteGaze from EfficientNet-lite0 to the files that ship. Reads top to bottom; every step goes on where it was.
#
#   RANKS=2 recipes/lite.sh
#
# RANKS processes of one thread each share every training step.
set -euo pipefail
cd "$(dirname "$0")/.."
python=${PYTHON:-.venv/bin/python}
config=recipes/lite0.toml
runs=runs
data=../shared/data
export OMP_NUM_THREADS=1
fastgaze=("$python" -m fastgaze)
together=("$python" -m torch.distributed.run --nproc_per_node "${RANKS:-2}" --master_port "${PORT:-29511}" -m fastgaze)

# 1. The whole network on fixations: photographs, crowds and screens.
"${together[@]}" distill --config $config --out $runs/lite0
$python recipes/keep.py $runs/lite0/best.safetensors checkpoints/litegaze-lite0.safetensors

# 2. Its maps, image and mirror image averaged, are half of the targets of the smaller ones.
[ -f $runs/lite0/maps-9995.npy ] || "${together[@]}" maps $runs/lite0 --config $config

# 3. Fisher pruning by the engine's milliseconds, with a snapshot at every mark.
"${fastgaze[@]}" prune --config $config --start $runs/lite0/best.safetensors --out $runs/lite0-pruned

# 4. Fine-tuning, export, scores. name : snapshot : steps
for student in default:8.2:1500 small:3.5:2500 tiny:1.7:4000; do
  IFS=: read -r name mark steps <<< "$student"
  out=$runs/lite/$name
  "${together[@]}" distill --config $config --start $runs/lite0-pruned/$mark.safetensors --out $out --steps "$steps"
  $python recipes/keep.py $out/best.safetensors checkpoints/litegaze-$name.safetensors
  "${fastgaze[@]}" export $out/best.safetensors --out $out/model.onnx --name "litegaze-$name"
  $python recipes/lite_check.py $out/best.safetensors --config $config --json $out/check.json
  for set in salicon/val osie eyecrowd ueyes; do
    held=(--held-out); [ $set = salicon/val ] && held=()
    scores=$out/${set//\//-}.json
    [ -f "$scores" ] || "${fastgaze[@]}" evaluate $out/model.onnx --data $data/$set --format npz "${held[@]}" \
      --threads 1 --json > "$scores.part"
    [ -f "$scores" ] || mv "$scores.part" "$scores"
  done
done
