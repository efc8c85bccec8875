#!/usr/bin/env bash
# The paper from the first image to the file that ships. Reads top to bottom; every step goes on where it was.
#
#   recipes/paper.sh tiny   minutes: CI runs it
#   recipes/paper.sh full   a day on two cores: what made the bundled models
set -euo pipefail
cd "$(dirname "$0")/.."
scale=${1:-tiny}
config=recipes/$scale.toml
runs=runs; [ "$scale" = tiny ] && runs=runs/tiny
fastgaze=.venv/bin/fastgaze
data=../shared/data

# 1. Teacher: DeepGaze II on SALICON, ten readouts on folds of the eye-tracking sets, their mean maps.
$fastgaze teacher --config "$config"

# 2. Student: VGG-11 on the teacher's maps and the eye-tracking sets' fixations.
$fastgaze distill --config "$config" --out "$runs/fastgaze"

# 3. Fisher pruning while training, with a snapshot at every mark of cost.
$fastgaze prune --config "$config" --start "$runs/fastgaze/best.safetensors" --out "$runs/pruned"

# 4. Fine-tune what is left, and export it.
for snapshot in "$runs"/pruned/[0-9]*.safetensors; do
  name=tuned-$(basename "$snapshot" .safetensors)
  $fastgaze distill --config "$config" --start "$snapshot" --out "$runs/$name"
  $fastgaze export "$runs/$name/best.safetensors" --out "$runs/$name/model.onnx" --name "$name"
done

# 5. Score the smallest one, as it ships, on the validation images and on the images that were kept out.
model=$(ls -S "$runs"/tuned-*/model.onnx | tail -n 1)
limit=(); [ "$scale" = tiny ] && limit=(--limit 8)
$fastgaze evaluate "$model" --data "$data/salicon/val" --format npz "${limit[@]}"
$fastgaze evaluate "$model" --data "$data/osie" --format npz --held-out "${limit[@]}"
