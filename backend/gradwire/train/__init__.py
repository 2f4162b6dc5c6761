"""The step that trains: the only package that imports torch, accelerate, deepspeed and transformers."""
