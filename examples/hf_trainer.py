#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Trains a causal language model on a text file with transformers' Trainer, one process per GPU.

    accelerate launch --num_processes=8 hf_trainer.py --model DIR --text FILE --out DIR
    hpctl submit hf-trainer.yaml

Each start goes on from the newest checkpoint that is complete: the Trainer writes
trainer_state.json last, so a checkpoint that a fault cut short has none. The callback lets hpctl
see the steps, and find a rank that hangs (docs/commands.md).
"""
import argparse
import os
import re

from datasets import load_dataset
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    DataCollatorForLanguageModeling,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)


class TellSteps(TrainerCallback):
    def on_step_end(self, args, state, control, **kwargs):
        with open(os.environ.get("HPCTL_PROGRESS_FILE", os.devnull), "a") as file:
            file.write(f"{state.global_step}\n")


def newest_complete(out):
    """The checkpoint to go on from; None = there is none."""
    found = []
    for name in os.listdir(out) if os.path.isdir(out) else []:
        step = re.fullmatch(r"checkpoint-(\d+)", name)
        if step and os.path.exists(os.path.join(out, name, "trainer_state.json")):
            found.append((int(step[1]), os.path.join(out, name)))
    return max(found)[1] if found else None


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model", required=True)
    parser.add_argument("--text", required=True)
    parser.add_argument("--out", required=True)
    parser.add_argument("--steps", type=int, default=1000)
    parser.add_argument("--save-every", type=int, default=50)
    args = parser.parse_args()

    tokenizer = AutoTokenizer.from_pretrained(args.model)
    if tokenizer.pad_token is None:
        tokenizer.pad_token = tokenizer.eos_token
    lines = load_dataset("text", data_files=args.text, split="train").filter(lambda row: row["text"])
    data = lines.map(
        lambda rows: tokenizer(rows["text"], truncation=True, max_length=512),
        batched=True,
        remove_columns=["text"],
    )
    trainer = Trainer(
        model=AutoModelForCausalLM.from_pretrained(args.model),
        args=TrainingArguments(
            output_dir=args.out,
            max_steps=args.steps,
            per_device_train_batch_size=1,
            save_steps=args.save_every,
            save_total_limit=3,
            logging_steps=10,
            report_to="none",
        ),
        train_dataset=data,
        data_collator=DataCollatorForLanguageModeling(tokenizer, mlm=False),
        callbacks=[TellSteps()],
    )
    trainer.train(resume_from_checkpoint=newest_complete(args.out))
    trainer.save_model()


if __name__ == "__main__":
    main()
