"""Names that other libraries use for rewards of this package.

A synonym is a hint in the message about an unknown name, never an alias: the rewards are similar but differ in their
ranges and arguments.
"""

_HERE = {
    "accuracy": "math",
    "reasoning_accuracy": "math",
    "correctness": "math",
    "gsm8k": "math",
    "math_verify": "math",
    "math_dapo": "math",
    "prime_math": "math",
    "int": "check_numbers",
    "xmlcount": "tag_count",
    "strict_format": "match_format_exactly",
    "soft_format": "match_format_approximately",
    "think": "think_format",
    "reasoning_steps": "step_format",
    "cosine_scaled": "cosine_length",
    "repetition": "ngram_repetition",
    "repetition_penalty": "ngram_repetition",
    "soft_overlong_punishment": "soft_overlong",
    "overlong": "soft_overlong",
    "overlong_buffer": "soft_overlong",
    "len": "response_length",
    "length": "response_length",
    "code": "code_tests",
    "binary_code": "code_tests",
    "ioi_code": "code_tests",
    "cf_code": "code_tests",
    "code_execution": "code_tests",
    "prime_code": "code_tests",
    "language": "language_consistency",
    "json": "json_schema",
    "f1_score": "f1",
    "em": "exact_match",
    "rouge": "overlap",
    "llm_judge": "judge",
}

NAMES = tuple(_HERE)


def synonym(name: str) -> str | None:
    """Return the built-in for a name from another library, or None.

    >>> synonym("get_cosine_scaled_reward"), synonym("accuracy_reward"), synonym("my_reward")
    ('cosine_length', 'math', None)
    """
    name = name.casefold().removeprefix("get_").removesuffix("_func").removesuffix("_reward")
    return _HERE.get(name)
