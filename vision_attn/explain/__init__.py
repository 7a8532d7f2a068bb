"""Looking inside: what a token attends to, and how far relevance flows through the layers."""

from vision_attn.explain.maps import attention_maps
from vision_attn.explain.rollout import attention_rollout

__all__ = ["attention_maps", "attention_rollout"]
