#!/usr/bin/env bash
# One run over hosts that ssh reaches, with all GPUs of each. For two hosts with eight GPUs each:
#   HOSTS="node0 node1" ssh_hosts.sh RUN_DIRECTORY model=qwen3_8b +experiment=lora_math model.mesh_shape=[2,1,8]
# The first host is process 0 and listens on PORT. All need the same environment in the same place, and a file system
# that they share. SSH may be another command that takes a host and a command line.
set -euo pipefail

directory=$1
shift
read -r -a hosts <<< "$HOSTS"

processes=()
for number in "${!hosts[@]}"; do
  command=$(printf '%q ' agent-tunix train distributed=manual \
    "distributed.coordinator_address=${hosts[0]}:${PORT:-29500}" \
    "distributed.num_processes=${#hosts[@]}" "distributed.process_id=$number" \
    training.resume=true "hydra.run.dir=$directory" "$@")
  ${SSH:-ssh} "${hosts[$number]}" "cd $(printf '%q' "$PWD") && PATH=$(printf '%q' "$PATH") $command" &
  processes+=($!)
done

status=0
for process in "${processes[@]}"; do wait "$process" || status=$?; done
exit "$status"
