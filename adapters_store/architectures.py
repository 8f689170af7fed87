"""Which model architectures can be base models: those that the trainers attach to and the engine serves exactly."""

#: transformers' class names, as config.json has them. Only those whose answers were compared with transformers', token
#: for token, with all methods and positions; `python -m tests.inference.architectures` is how others come to be here.
PROVEN = {
    "GemmaForCausalLM",
    "LlamaForCausalLM",
    "MistralForCausalLM",
    "Qwen2ForCausalLM",
    "Qwen3ForCausalLM",
}
