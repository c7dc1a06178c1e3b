"""examples/python/ppo.py in PyTorch, line for line, for bench_ppo.py.

    python3 ppo_torch.py NAME SEED STEPS

Prints "name PyTorch VERSION", and "run SPEED RETURN": steps a second of processor time, and the mean of the last 20 episodes' returns. One
thread: networks of this size are slower on more. PyTorch's fast ways are taken: Adam is fused, actions are drawn by the Gumbel-max method and
probabilities written out (torch.distributions takes longer), acting is in inference mode. Exit status 3: there is no PyTorch, or no gymnasium.
"""
import math
import sys
import time

import torch_peer
import torch

try:
    import gymnasium
except ImportError:
    sys.exit(3)
import numpy as np

SETTINGS = {
    "CartPole-v1": dict(steps=100_000, environments=8, rollout=32, epochs=20, batch=256, lr=1e-3, discount=0.98, trace=0.8, clip=0.2,
                        entropy=0.0, reward_scale=1.0),
    "Pendulum-v1": dict(steps=150_000, environments=4, rollout=256, epochs=10, batch=64, lr=1e-3, discount=0.9, trace=0.95, clip=0.2,
                        entropy=0.0, reward_scale=0.1),
}


class Environments:
    def __init__(self, name, count, seed):
        self.envs = [gymnasium.make(name, disable_env_checker=True) for _ in range(count)]
        self.observations = np.stack([env.reset(seed=seed + i)[0] for i, env in enumerate(self.envs)]).astype(np.float32)
        self.discrete = isinstance(self.envs[0].action_space, gymnasium.spaces.Discrete)
        self.sums, self.returns = [0.0] * count, []

    def step(self, actions):
        rewards, terminated, ended = (np.zeros(len(self.envs), np.float32) for _ in range(3))
        following = np.empty_like(self.observations)
        for i, env in enumerate(self.envs):
            following[i], rewards[i], terminated[i], truncated, _ = env.step(actions[i])
            self.sums[i] += float(rewards[i])
            ended[i] = terminated[i] or truncated
            self.observations[i] = following[i]
            if ended[i]:
                self.returns.append(self.sums[i])
                self.sums[i], self.observations[i] = 0.0, env.reset()[0]
        return rewards, terminated, ended, following


class Agent(torch.nn.Module):
    def __init__(self, observations, actions, discrete):
        super().__init__()

        def layer(inputs, outputs, scale=2 ** 0.5):
            made = torch.nn.Linear(inputs, outputs)
            torch.nn.init.orthogonal_(made.weight, scale)
            torch.nn.init.zeros_(made.bias)
            return made

        def network(outputs, scale):
            return torch.nn.Sequential(layer(observations, 64), torch.nn.Tanh(), layer(64, 64), torch.nn.Tanh(), layer(64, outputs, scale))
        self.policy, self.value, self.discrete = network(actions, 0.01), network(1, 1.0), discrete
        if not discrete:
            self.log_deviation = torch.nn.Parameter(torch.zeros(actions))

    @torch.inference_mode()
    def draw(self, observations):
        output = self.policy(observations)
        if self.discrete:
            return (output + torch.empty_like(output).exponential_().log_().neg_()).argmax(-1)
        return output + torch.exp(self.log_deviation) * torch.randn_like(output)

    def judge(self, observations, actions):
        output = self.policy(observations)
        if self.discrete:
            logs = torch.log_softmax(output, -1)
            return logs.gather(-1, actions.unsqueeze(-1)).squeeze(-1), -(logs.exp() * logs).sum(-1).mean()
        deviation = self.log_deviation.exp()
        logs = -0.5 * ((actions - output) / deviation).square() - self.log_deviation - 0.5 * math.log(2 * math.pi)
        return logs.sum(-1), (self.log_deviation + 0.5 * math.log(2 * math.pi * math.e)).sum()


def train(name, seed, **changes):
    s = {**SETTINGS[name], **changes}
    torch.manual_seed(seed)
    envs = Environments(name, s["environments"], seed)
    space = envs.envs[0].action_space
    agent = Agent(envs.observations.shape[1], int(space.n) if envs.discrete else space.shape[0], envs.discrete)
    parameters = list(agent.parameters())
    adam = torch.optim.Adam(parameters, lr=s["lr"], eps=1e-5, fused=True)

    def learn(observations, actions, rewards, terminated, ended, following):
        with torch.no_grad():
            values, next_values = agent.value(observations).squeeze(-1), agent.value(following).squeeze(-1)
            difference = rewards * s["reward_scale"] + s["discount"] * (1 - terminated) * next_values - values
            advantage, advantages = torch.zeros(s["environments"]), torch.empty_like(values)
            for t in reversed(range(s["rollout"])):
                advantage = difference[t] + s["discount"] * s["trace"] * (1 - ended[t]) * advantage
                advantages[t] = advantage
            advantages = advantages.flatten()
            targets = advantages + values.flatten()
            x, a = observations.flatten(0, 1), actions.flatten(0, 1)
            before, _ = agent.judge(x, a)
        for _ in range(s["epochs"]):
            order = torch.randperm(len(x))
            for rows in order.split(s["batch"]):
                states = x[rows]
                logs, entropy = agent.judge(states, a[rows])
                gain = advantages[rows]
                gain = (gain - gain.mean()) / (gain.std(correction=0) + 1e-8)
                ratio = torch.exp(logs - before[rows])
                policy_loss = -torch.minimum(ratio * gain, ratio.clamp(1 - s["clip"], 1 + s["clip"]) * gain).mean()
                value_loss = torch.nn.functional.mse_loss(agent.value(states).squeeze(-1), targets[rows])
                loss = policy_loss + 0.5 * value_loss - s["entropy"] * entropy
                adam.zero_grad(set_to_none=True)
                loss.backward()
                torch.nn.utils.clip_grad_norm_(parameters, 0.5)
                adam.step()

    updates = s["steps"] // (s["environments"] * s["rollout"])
    for update in range(updates):
        adam.param_groups[0]["lr"] = s["lr"] * (1 - update / updates)
        rows = []
        for _ in range(s["rollout"]):
            observations = envs.observations.copy()
            actions = agent.draw(torch.from_numpy(observations)).numpy()
            rows.append((observations, actions, *envs.step(actions)))
        learn(*(torch.from_numpy(np.stack(column)) for column in zip(*rows)))
    return envs.returns


def main():
    torch_peer.start(1)
    print(f"name PyTorch {torch_peer.version()}")
    steps, begin = int(sys.argv[3]), time.process_time()
    returns = train(sys.argv[1], int(sys.argv[2]), steps=steps)
    print(f"run {steps / (time.process_time() - begin):.1f} {np.mean(returns[-20:]):.2f}", flush=True)


main()
