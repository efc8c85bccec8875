#!/usr/bin/env bash
# The paper from the first image to the file that ships. Reads top to bottom; every step goes on where it was.
#
#   recipes/paper.sh tiny   minutes: CI runs it
#   recipes/paper.sh full   hours on two cores; docs/models.md says how the bundled models' run differed from it
set -euo pipefail
cd "$(dirname "$0")/.."
scale=${1:-tiny}
config=recipes/$scale.toml
runs=runs; if [ "$scale" = tiny ]; then runs=runs/tiny; fi
fastgaze=.venv/bin/fastgaze
data=../shared/data

# 1. Teacher: DeepGaze II on SALICON, ten readouts on folds of the eye-tracking sets, their mean maps.
$fastgaze teacher --config "$config"

# 2. Student: VGG-11 on the teacher's maps and the eye-tracking sets' fixations.
$fastgaze distill --config "$config" --out "$runs/fastgaze"

# 3. Fisher pruning while training, with a snapshot at every mark of cost.
$fastgaze prune --config "$config" --start "$runs/fastgaze/best.safetensors" --out "$runs/pruned"

# 4. Widths that fit the engine's blocks of 16 channels, fine-tuning, export.
case $scale in
  tiny) from=8; students="tiny:4,4,4,4,4,4,4,4:4,4,2" ;;
  *)    from=10; students="fastgaze-m:16,32,32,48,64,64,80,112:30,16,2
                           fastgaze-s:16,16,16,32,32,48,48,64:30,16,2
                           fastgaze-xs:16,16,16,16,16,16,32,48:16,16,2" ;;
esac
for student in $students; do
  IFS=: read -r name widths readout <<< "$student"
  $fastgaze narrow --config "$config" --start "$runs/pruned/$from.safetensors" \
    --widths "$widths" --readout "$readout" --out "$runs/narrow/$name.safetensors"
  $fastgaze distill --config "$config" --start "$runs/narrow/$name.safetensors" --out "$runs/$name"
  $fastgaze export "$runs/$name/best.safetensors" --out "$runs/$name/model.onnx" --name "$name"
done

# 5. Score the smallest one, as it ships, on the validation images and on the images that were kept out.
model=$runs/$name/model.onnx
limit=(); [ "$scale" = tiny ] && limit=(--limit 8)
$fastgaze evaluate "$model" --data "$data/salicon/val" --format npz "${limit[@]}"
$fastgaze evaluate "$model" --data "$data/osie" --format npz --held-out "${limit[@]}"
