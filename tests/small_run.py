"""A run that takes seconds, as overrides of the configuration."""

# Those that keep to these shapes and to this number of steps share what XLA compiles.
NUM_STEPS = 4
SMALL_RUN = (
    f"training.num_batches={NUM_STEPS}",
    "training.batch_size=4",
    "grpo.num_generations=4",
    "generation.max_generation_steps=16",
    "evaluation.num_samples=16",
    "evaluation.batch_size=16",
    "data.num_train=64",
    "data.num_test=16",
    "tracking.tensorboard=false",
    "tracking.report=false",
)
