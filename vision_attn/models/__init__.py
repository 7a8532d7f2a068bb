"""Image models; importing the package registers ours with timm as `vision_attn_*`."""

from vision_attn.models import cnn, conv_init_vit, linear, local_vit, timm_vit

__all__ = ["cnn", "conv_init_vit", "linear", "local_vit", "timm_vit"]
