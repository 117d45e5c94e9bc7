#!/usr/bin/env bash
# Answers of a support desk, rewarded by keywords, brevity and a judge: support_desk.sh DIRECTORY
# DIRECTORY is empty or absent. PORT is that of the judge, 18230 by default.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
port=${PORT:-18230}
mkdir -p "$1"
cd "$1"
cp -r "$here"/{rows.py,support.py,judge_server.py,conf} .
sed -i "s/:18230/:$port/" conf/reward/support.yaml
python rows.py

# The judge answers from here on, until the script ends.
mkfifo ready
python judge_server.py "$port" >ready &
trap 'kill $!' EXIT
read -r _ <ready

# One answer, component by component.
agent-tunix rewards try support --prompt "How do I get a refund?" --response "Within 14 days, in office 2." \
  --column 'keywords=["14", "2"]'

# What all runs share: a small run on these rows, whose references are no mathematics.
common=(
  reward=support data.source=jsonl data.path=rows training.num_batches=6 training.batch_size=4
  grpo.num_generations=4 generation.max_generation_steps=16 evaluation.num_samples=8 evaluation.batch_size=8
  evaluation.correct=support.py:keywords evaluation.correct_at=0.5 evaluation.with_rewards=true
  training.eval_every_n_steps=1 tracking.progress=plain
)

# Evaluation by the reward before, during and after training. The run ends early: no gain is larger than 0.9.
agent-tunix train "${common[@]}" stopping.metric=eval/rewards/total/mean stopping.min_delta=0.9 stopping.patience=2 \
  hydra.run.dir=runs/first

# Two learning rates by two clip ranges.
agent-tunix train --multirun "${common[@]}" training.num_batches=2 tracking.report=false \
  optimizer.learning_rate=1e-4,1e-3 grpo.epsilon=0.1,0.2 hydra.sweep.dir=runs/sweep
agent-tunix compare runs/sweep --metric eval/rewards/total/mean

# What the completions would have earned if brevity counted more. Status 1: the totals are others.
agent-tunix rewards replay runs/first reward.components.brevity.weight=0.9 || test $? = 1

# The reward in the store, and a mixture that trains by the ids.
agent-tunix store upload conf/reward/support.yaml --if-changed | tee conf/reward/stored.yaml

# The model, in a form that transformers and vLLM load.
agent-tunix export runs/first --to exported
