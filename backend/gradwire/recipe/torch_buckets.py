"""The sizes of DDP's buckets where a recipe leaves them out, in MiB."""

TORCH_BUCKET_MIB = 25
TORCH_FIRST_BUCKET_MIB = 1
