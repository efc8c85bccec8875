#!/usr/bin/env bash
# The paper from the first image to the report. Reads top to bottom; every step that was interrupted can be resumed.
#
#   experiments/paper.sh tiny   minutes, on a handful of images; everything goes to runs/tiny. CI runs it.
#   experiments/paper.sh full   days on two cores; docs/models.md says how the run that made the paper's line differed.
#
# The data sets lie in data/, or where FASTGAZE_DATA says. PYTHON names the interpreter, .venv's by default.
set -euo pipefail
cd "$(dirname "$0")/.."
export FASTGAZE_DATA=${FASTGAZE_DATA:-$PWD/data}
# Memory of one step is kept for the next: giving it back to the system each time costs a sixth of a pass on a CPU.
export MALLOC_MMAP_MAX_=0 MALLOC_TRIM_THRESHOLD_=100000000000 MALLOC_TOP_PAD_=200000000
python=${PYTHON:-.venv/bin/python}
workshop="$python -m fastgaze workshop"
configs=experiments/configs
scale=${1:-tiny}
case $scale in
  tiny) config=$configs/tiny.toml; runs=runs/tiny; results=runs/tiny/results; docs=runs/tiny/docs; tiny=--tiny ;;
  full) config=$configs/full.toml; runs=runs; results=results; docs=docs; tiny= ;;
  *) echo "usage: $0 tiny|full" >&2; exit 2 ;;
esac

measure() {  # measure NAME [ARGUMENTS]: an experiment, in its tiny form where that is asked for
  # shellcheck disable=SC2086  # $tiny is a word or nothing
  $python -m "experiments.$1" "${@:2}" $tiny
}

# 1. Teacher: DeepGaze II on SALICON, ten readouts on folds of the eye-tracking sets, their soft targets.
$workshop teacher --config "$config"

# 2. Student: VGG-11 on the teacher's soft targets and the fixations of the eye-tracking sets.
$workshop distill --config "$config" --out "$runs/fastgaze"

# 3. Fisher pruning while training, with a snapshot at every mark of cost.
$workshop prune --config "$config" --start "$runs/fastgaze/best.safetensors" --out "$runs/pruned"

# 4. The students: a snapshot brought to typed-in widths that fill the engine's blocks of 16 channels, and tuned.
#    name : snapshot to start from : steps : sides relative to 320x240 : maps of the trunk's layers : maps of the readout's
case $scale in
  tiny) students="tiny:8:20:1.0:4,4,4,4,4,4,4,4:4,4,2" ;;
  full) students="fastgaze-l:40:7500:1.0:32,48,64,96,128,160,144,256:32,16,2
                  fastgaze-m:10:16000:0.95:16,32,32,48,64,64,80,112:30,16,2
                  fastgaze-s:10:20000:0.85:16,16,16,32,32,48,48,64:30,16,2
                  fastgaze-xs:10:15000:0.65:16,16,16,16,16,16,32,48:16,16,2" ;;
esac
for student in $students; do
  IFS=: read -r name mark steps sides widths readout <<< "$student"
  $workshop narrow --config "$config" --start "$runs/pruned/$mark.safetensors" \
    --widths "$widths" --readout "$readout" --out "$runs/narrow/$name.safetensors"
  $workshop tune --config "$config" --start "$runs/narrow/$name.safetensors" --out "$runs/$name" \
    --steps "$steps" --scale "$sides"
done

# 5. DenseGaze the same way, from DenseNet-121. Pruned, it is ahead of the teacher: it teaches the small ones at last,
#    photographs first, then drawings, frames and other variants of them too.
if [ "$scale" = full ]; then
  dense=$configs/densegaze.toml
  $workshop distill --config "$dense" --out "$runs/densegaze"
  $workshop prune --config "$dense" --start "$runs/densegaze/best.safetensors" --out "$runs/densegaze-pruned"
  $workshop tune --config "$dense" --start "$runs/densegaze-pruned/12.7.safetensors" --out "$runs/densegaze-m"
  $workshop soft-targets "$runs/densegaze-m" --config "$config"
  $workshop soft-targets "$runs/densegaze-m" --config "$config" --variants
  for student in fastgaze-m:10000:0.95 fastgaze-s:12000:0.85; do
    IFS=: read -r name steps sides <<< "$student"
    $workshop tune --config "$configs/assistant.toml" --start "$runs/$name/best.safetensors" \
      --out "$runs/taught/$name" --steps "$steps" --scale "$sides"
  done
  for student in taught/fastgaze-m:13000:0.95 fastgaze-l:5500:1.0 taught/fastgaze-s:6000:0.85 fastgaze-xs:22000:0.65; do
    IFS=: read -r start steps sides <<< "$student"
    name=${start#taught/}
    $workshop tune --config "$configs/variants.toml" --start "$runs/$start/best.safetensors" \
      --out "$runs/varied/$name" --steps "$steps" --scale "$sides"
  done
  wide=$configs/unpruned.toml
  $workshop soft-targets "$runs/densegaze-m" --config "$wide"
  $workshop distill --config "$wide" --grow "$runs/varied/fastgaze-l/best.safetensors" --out "$runs/fastgaze-grown"
  $workshop tune --config "$wide" --start "$runs/fastgaze-grown/best.safetensors" --out "$runs/fastgaze-wide"
fi

# 6. The networks are kept for everything that starts from them or is compared with them (experiments/lite.sh makes the
#    models that are bundled); in its tiny form one file is exported and scored.
if [ "$scale" = full ]; then
  measure teacher_scores --config "$config" --out "$results/deepgaze2.json"
  $python -m experiments.keep "$runs/teacher/ensemble.safetensors" checkpoints/deepgaze2.safetensors --without-trunk
  $python -m experiments.keep "$runs/densegaze-m/best.safetensors" checkpoints/densegaze-m.safetensors
  $python -m experiments.keep "$runs/fastgaze-wide/best.safetensors" checkpoints/fastgaze.safetensors
  for name in fastgaze-l fastgaze-m fastgaze-s fastgaze-xs; do
    $python -m experiments.keep "$runs/varied/$name/best.safetensors" "checkpoints/$name.safetensors"
  done
else
  $python -m fastgaze export "$runs/$name/best.safetensors" --out "$runs/$name/model.onnx" --name "$name"
  $python -m fastgaze evaluate "$runs/$name/model.onnx" --data "$FASTGAZE_DATA/salicon/val" --limit 4
  $python -m fastgaze evaluate "$runs/$name/model.onnx" --data "$FASTGAZE_DATA/osie" --held-out --limit 4
fi

# 7. Table 1 and Figure 1: LeNet-5, and pruning methods without retraining.
measure lenet_mnist --work "$runs/lenet_mnist" --out "$results/lenet_mnist.json"
measure pruning_comparison "$configs/figure1-lenet.toml" --model "$runs/lenet_mnist/unpruned-seed1.safetensors" \
  --out "$results/figure1-lenet.json"
measure pruning_comparison "$configs/figure1.toml" --cache "$runs/cache" --out "$results/figure1.json"

# 8. What counting the cost is worth: at equal cost, by a random search, and other choices while pruning.
measure equal_cost "$configs/equal_cost.toml" --out "$results/equal_cost.json"
measure equal_cost "$configs/choices.toml" --out "$results/choices.json"
measure random_search --out "$results/sweep.json"
if [ "$scale" = full ]; then
  for family in densegaze litegaze; do
    measure equal_cost "$configs/equal_cost-$family.toml" --out "$results/equal_cost-$family.json"
  done
  for pace in paper fast; do
    $workshop prune --config "$configs/${pace}_pace.toml" --start checkpoints/fastgaze.safetensors --out "$runs/$pace-pace"
    for mark in 40 20 10 5; do
      $workshop tune --config "$configs/paper_pace.toml" --start "$runs/$pace-pace/$mark.safetensors" \
        --out "$runs/$pace-pace/tuned/$mark"
    done
  done
fi

# 9. Figures 2 to 4 and Table 2: scores, times, maps; the peer; the speed of what is bundled; whom the crop prefers.
measure front --out "$results/front.json"
measure front --times --out "$results/front.json"
measure saliency_maps --out "$results/maps.json" --images "$docs/images/results/maps"
measure peers --out "$results/peers.json"
measure peers --readings --out "$results/peers.json"
measure speed --score --out "$results/speed.json"
for name in tiny small default large; do
  pairs=40; if [ "$scale" = tiny ]; then pairs=1; fi
  $python -m fastgaze audit --model "$name" --pairs "$pairs" --json > "$results/crop_audit-$name.json"
  if [ "$scale" = tiny ]; then break; fi
done
if [ "$scale" = full ]; then  # batch jobs on several nodes; the second needs moto[server] and s3fs
  measure cluster_speed --out "$results/cluster_speed.json"
  measure cluster --out "$results/cluster.json"
fi

# 10. The report; and README and model cards, which a tiny run leaves as they are.
$python -m experiments.report --results "$results" --docs "$docs"
if [ "$scale" = full ]; then measure readme; fi
