#!/usr/bin/env bash
# The paper from the first image to the files that ship. Reads top to bottom; every step goes on where it was.
#
#   experiments/paper.sh tiny   minutes: CI runs it
#   experiments/paper.sh full   hours on two cores; docs/models.md says how the bundled models' run differed from it
set -euo pipefail
cd "$(dirname "$0")/.."
scale=${1:-tiny}
config=experiments/$scale.toml
runs=runs; if [ "$scale" = tiny ]; then runs=runs/tiny; fi
fastgaze=.venv/bin/fastgaze
python=.venv/bin/python
data=../shared/data

# 1. Teacher: DeepGaze II on SALICON, ten readouts on folds of the eye-tracking sets, their mean maps.
$fastgaze teacher --config "$config"

# 2. Student: VGG-11 on the teacher's maps and the eye-tracking sets' fixations.
$fastgaze distill --config "$config" --out "$runs/fastgaze"

# 3. Fisher pruning while training, with a snapshot at every mark of cost.
$fastgaze prune --config "$config" --start "$runs/fastgaze/best.safetensors" --out "$runs/pruned"

# 4. Widths that fit the engine's blocks of 16 channels, and fine-tuning.
#    name : snapshot to start from : steps : sides relative to 240x320 : maps of the trunk's layers : maps of the readout's
case $scale in
  tiny) students="tiny:8:20:1.0:4,4,4,4,4,4,4,4:4,4,2" ;;
  *)    students="fastgaze-l:40:7500:1.0:32,48,64,96,128,160,144,256:32,16,2
                  fastgaze-m:10:16000:0.95:16,32,32,48,64,64,80,112:30,16,2
                  fastgaze-s:10:20000:0.85:16,16,16,32,32,48,48,64:30,16,2
                  fastgaze-xs:10:15000:0.65:16,16,16,16,16,16,32,48:16,16,2" ;;
esac
for student in $students; do
  IFS=: read -r name mark steps sides widths readout <<< "$student"
  $fastgaze narrow --config "$config" --start "$runs/pruned/$mark.safetensors" \
    --widths "$widths" --readout "$readout" --out "$runs/narrow/$name.safetensors"
  $fastgaze distill --config "$config" --start "$runs/narrow/$name.safetensors" --out "$runs/$name" \
    --steps "$steps" --scale "$sides"
done

# 5. DenseGaze the same way, from DenseNet-121. Pruned, it is ahead of the teacher: it teaches the small ones at last,
#    photographs first, then drawings, frames and other variants of them too.
if [ "$scale" = full ]; then
  dense=experiments/configs/densegaze.toml
  $fastgaze distill --config "$dense" --out "$runs/densegaze"
  $fastgaze prune --config "$dense" --start "$runs/densegaze/best.safetensors" --out "$runs/densegaze-pruned"
  $fastgaze distill --config "$dense" --start "$runs/densegaze-pruned/12.7.safetensors" --out "$runs/densegaze-m"
  $fastgaze maps "$runs/densegaze-m" --config "$config"
  $fastgaze maps "$runs/densegaze-m" --config "$config" --variants
  for student in fastgaze-m:10000:0.95 fastgaze-s:12000:0.85; do
    IFS=: read -r name steps sides <<< "$student"
    $fastgaze distill --config experiments/configs/assistant.toml --start "$runs/$name/best.safetensors" \
      --out "$runs/taught/$name" --steps "$steps" --scale "$sides"
  done
  for student in taught/fastgaze-m:13000:0.95 fastgaze-l:5500:1.0 taught/fastgaze-s:6000:0.85 fastgaze-xs:22000:0.65; do
    IFS=: read -r start steps sides <<< "$student"
    name=${start#taught/}
    $fastgaze distill --config experiments/configs/variants.toml --start "$runs/$start/best.safetensors" \
      --out "$runs/varied/$name" --steps "$steps" --scale "$sides"
  done
  wide=experiments/configs/unpruned.toml
  $fastgaze distill --config "$wide" --grow "$runs/varied/fastgaze-l/best.safetensors" --out "$runs/fastgaze-grown"
  $fastgaze distill --config "$wide" --start "$runs/fastgaze-grown/best.safetensors" --out "$runs/fastgaze-wide"
  exported=$runs/varied/$name
else
  exported=$runs/$name
fi

# 6. Export the smallest one and score it, as it ships, on the validation images and on the images that were kept out.
model=$exported/model.onnx
$fastgaze export "$exported/best.safetensors" --out "$model" --name "$name"
limit=(); [ "$scale" = tiny ] && limit=(--limit 8)
$fastgaze evaluate "$model" --data "$data/salicon/val" --format npz "${limit[@]}"
$fastgaze evaluate "$model" --data "$data/osie" --format npz --held-out "${limit[@]}"
if [ "$scale" = tiny ]; then exit; fi

# 7. Regularised pruning, beta = 0 and frozen costs from one start, tuned alike.
compare=experiments/configs/compare.toml
for kind in "star:" "none:--objective none" "frozen:--frozen-cost"; do
  name=${kind%%:*}
  # shellcheck disable=SC2086  # options are words
  $fastgaze prune --config "$compare" --start "$runs/fastgaze/best.safetensors" --out "$runs/front/$name" ${kind#*:}
  $fastgaze distill --config "$compare" --start "$runs/front/$name/10.safetensors" --out "$runs/front/$name-10"
  if [ "$name" = frozen ]; then continue; fi
  # shellcheck disable=SC2086
  $fastgaze prune --config "$compare" --start "$runs/densegaze/best.safetensors" \
    --out "$runs/front/densegaze-$name" ${kind#*:}
  $fastgaze distill --config "$compare" --start "$runs/front/densegaze-$name/10.safetensors" \
    --out "$runs/front/densegaze-$name-10"
done

# 8. Random search over beta and the number of maps, from the largest of the shipped ones.
$fastgaze sweep --config experiments/configs/sweep.toml --start "$runs/varied/fastgaze-l/best.safetensors" --out "$runs/sweep" \
  --trials 8 --json > results/sweep.json

# 9. Into the package, with the scores of the files as they ship; then README, model cards and the report.
$python -m experiments.teacher_scores "$config" --json results/teacher.json
$python -m experiments.ship experiments/configs/ship.toml --data "$data"
$python -m experiments.readme
