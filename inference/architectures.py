"""The decoder layers that were read: each returns (hidden, residual), whose sum is the residual stream behind it.

That contract is what DiReFT and LoReFT need (inference.residual), and adapters_store.architectures says which of them
were proven. LoRA needs none of it.
"""

#: vLLM's model class to its decoder layer's class, both found in the module before the class's name.
LAYERS = {
    "LlamaForCausalLM": "vllm.model_executor.models.llama.LlamaDecoderLayer",
    "MistralForCausalLM": "vllm.model_executor.models.mistral.MistralDecoderLayer",
    "Qwen2ForCausalLM": "vllm.model_executor.models.qwen2.Qwen2DecoderLayer",
    "Qwen3ForCausalLM": "vllm.model_executor.models.qwen3.Qwen3DecoderLayer",
    "GemmaForCausalLM": "vllm.model_executor.models.gemma.GemmaDecoderLayer",
    "Gemma2ForCausalLM": "vllm.model_executor.models.gemma2.Gemma2DecoderLayer",
    "Gemma3ForCausalLM": "vllm.model_executor.models.gemma3.Gemma3DecoderLayer",
}
