"""The policy: model, tokenizer, adapter, mesh and optimiser, from a model directory."""
