#!/usr/bin/env bash
# A run on this host whose completions vLLM samples on another one, with a server for each of its GPUs. On two machines of
# a Slurm job, with eight GPUs each:
#   MODEL=Qwen/Qwen3-8B sbatch --nodes=2 --gpus-per-node=8 \
#   vllm_hosts.sh model=qwen3_8b +experiment=lora_math model.mesh_shape=[1,1,8]
# Without Slurm, the other host is SAMPLER, which ssh (or SSH) reaches. Both share a file system. vLLM is installed in an
# environment of its own there; VLLM is its program. RANK is at least model.lora_rank, and one of the choices of vLLM; 0 to
# train all weights.
#SBATCH --job-name=grpo
#SBATCH --nodes=2
#SBATCH --ntasks-per-node=1
#SBATCH --time=24:00:00
#SBATCH --open-mode=append
#SBATCH --output=%x-%j.log
#SBATCH --requeue
set -euo pipefail

directory=${RUN_DIRECTORY:-${SLURM_SUBMIT_DIR:-$PWD}/runs/${SLURM_JOB_ID:-vllm}}
rank=${RANK:-16} port=${PORT:-8000}
train=(agent-tunix train)
start=(${SSH:-ssh} "${SAMPLER:-}")
if [[ -n ${SLURM_JOB_ID:-} ]]; then
  mapfile -t hosts < <(scontrol show hostnames "$SLURM_JOB_NODELIST")
  SAMPLER=${hosts[1]}
  train=(srun --nodes=1 --ntasks=1 "--nodelist=${hosts[0]}" "${train[@]}")
  start=(srun --nodes=1 --ntasks=1 "--nodelist=$SAMPLER" bash -c)
fi

# The key of the servers, which only this user can read.
mkdir -p "$directory"
(umask 077 && head -c 32 /dev/urandom | od -An -tx1 | tr -d ' \n' > "$directory/engine.key")
VLLM_API_KEY=$(< "$directory/engine.key")
export VLLM_API_KEY

server=("${VLLM:-vllm}" serve "$MODEL" --host 0.0.0.0 --logprobs-mode processed_logprobs --generation-config vllm
  --enable-prefix-caching --dtype bfloat16 --max-model-len "${CONTEXT:-4096}")
switch=VLLM_SERVER_DEV_MODE=1
if ((rank)); then
  server+=(--enable-lora --max-loras 4 --max-cpu-loras 4 --max-lora-rank "$rank")
  switch=VLLM_ALLOW_RUNTIME_LORA_UPDATING=True
fi
command="export $switch VLLM_API_KEY=\$(cat $(printf '%q' "$directory/engine.key")); "
urls=()
for ((gpu = 0; gpu < ${GPUS:-8}; gpu++)); do
  command+="CUDA_VISIBLE_DEVICES=$gpu $(printf '%q ' "${server[@]}" --port $((port + gpu)))& "
  urls+=("http://$SAMPLER:$((port + gpu))")
done
# The servers end with this script, however it ends: then the input of `cat` is at its end.
exec 3> >("${start[@]}" "${command}cat > /dev/null; kill \$(jobs -p); wait")
servers=$!

status=0
"${train[@]}" engine=vllm "engine.urls=[$(IFS=,; echo "${urls[*]}")]" "engine.adapter_directory=$directory/engine" \
  engine.api_key_variable=VLLM_API_KEY training.resume=true "hydra.run.dir=$directory" "$@" 3>&- || status=$?
exec 3>&-
wait "$servers" || true
exit "$status"
