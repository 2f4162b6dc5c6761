"""A user's script in plain torch: DDP where a launcher starts it, accumulation, evaluation, a checkpoint."""

import os
import sys
from pathlib import Path

import torch
import torch.distributed
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
is_launched = "RANK" in os.environ
if is_launched:
    torch.distributed.init_process_group("gloo")
own = torch.nn.Sequential(torch.nn.Embedding(16, 8), torch.nn.Linear(8, 16))
model = DistributedDataParallel(own) if is_launched else own
optimizer = torch.optim.AdamW(model.parameters())
tokens = TensorDataset(torch.randint(16, (48, 10)))

micro_step = 0
for _epoch in range(2):
    for (batch,) in DataLoader(tokens, batch_size=4):
        loss = torch.nn.functional.cross_entropy(model(batch).flatten(0, 1), batch.flatten())
        loss.backward()
        micro_step += 1
        if micro_step % 2 == 0:
            optimizer.step()
            optimizer.zero_grad()
    model.eval()
    with torch.no_grad():
        for (batch,) in DataLoader(tokens, batch_size=16):
            model(batch)
    model.train()
    if os.environ.get("RANK", "0") == "0":
        torch.save(own.state_dict(), Path(sys.argv[1]) / "model.pt")
print("done", *sys.argv[2:])
if is_launched:
    torch.distributed.barrier()
    torch.distributed.destroy_process_group()
if "fail" in sys.argv:
    sys.exit(7)
