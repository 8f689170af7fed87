"""Which model architectures can be base models: those that the trainers attach to and the engine serves exactly."""

#: transformers' class names, as config.json has them. A test holds the engine's table (inference) to the same names.
ARCHITECTURES = ("LlamaForCausalLM",)
