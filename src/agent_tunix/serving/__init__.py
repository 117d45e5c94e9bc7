"""The policy over HTTP: OpenAI's routes over a source of tokens, and the recorder of agents' calls."""
