"""Completions from inference engines over HTTP: vLLM, SGLang, or agent_tunix on other chips."""
