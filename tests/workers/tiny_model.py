"""Makes a folder with a Stable Diffusion pipeline of random weights: `python tests/workers/tiny_model.py FOLDER`.

Its pictures mean nothing, but it is a model like any other: 64 px, and a hundredth of a second a step.
"""

import sys

import torch
from diffusers import AutoencoderKL, PNDMScheduler, StableDiffusionPipeline, UNet2DConditionModel
from transformers import CLIPTextConfig, CLIPTextModel, CLIPTokenizer

WIDTH = 32


def main(folder: str) -> None:
    torch.manual_seed(0)
    letters = [chr(code) for code in range(33, 127)]
    entries = [*letters, *(letter + "</w>" for letter in letters), "<|startoftext|>", "<|endoftext|>"]
    tokenizer = CLIPTokenizer(
        vocab={entry: number for number, entry in enumerate(entries)}, merges=[], model_max_length=24
    )
    text = CLIPTextModel(
        CLIPTextConfig(
            vocab_size=len(entries),
            hidden_size=WIDTH,
            intermediate_size=WIDTH,
            num_hidden_layers=1,
            num_attention_heads=2,
            max_position_embeddings=24,
            bos_token_id=len(entries) - 2,
            eos_token_id=len(entries) - 1,
        )
    )
    unet = UNet2DConditionModel(
        sample_size=32,
        block_out_channels=(32, 64),
        layers_per_block=1,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "UpBlock2D"),
        cross_attention_dim=WIDTH,
        attention_head_dim=8,
        norm_num_groups=16,
    )
    vae = AutoencoderKL(
        block_out_channels=(32, 32),
        down_block_types=("DownEncoderBlock2D",) * 2,
        up_block_types=("UpDecoderBlock2D",) * 2,
        latent_channels=4,
        norm_num_groups=16,
        sample_size=64,
    )
    pipeline = StableDiffusionPipeline(
        vae=vae,
        text_encoder=text,
        tokenizer=tokenizer,
        unet=unet,
        scheduler=PNDMScheduler(skip_prk_steps=True, steps_offset=1),
        safety_checker=None,
        feature_extractor=None,
        requires_safety_checker=False,
    )
    pipeline.save_pretrained(folder)


if __name__ == "__main__":
    main(sys.argv[1])
