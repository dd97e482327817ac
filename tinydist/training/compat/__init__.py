"""Compatibility: runs programs and configurations of DeepSpeed and Megatron-LM on this engine.

config.py       DeepSpeed's ds_config.json: plan, optimizer, schedule (ds_*.py)
initialize.py   training loops as in DeepSpeed's tutorials; model_engine.py: their engine
pretrain.py     scripts like Megatron-LM's pretrain_gpt.py (megatron_*.py)
"""
